// What the launcher asked for, read once from the environment.
#ifndef AIT_PROBE_SETTINGS_H
#define AIT_PROBE_SETTINGS_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ait {

struct Settings {
    // Contents: the tokens of ATB_DUMP_TYPE.
    bool tensor = false;
    bool stats = false;
    bool layer = false;
    bool model = false;
    bool op = false;
    bool kernel = false;
    bool cpuProfiling = false;
    bool onnx = false;

    // Selection.
    std::vector<std::string> ids;     // "3_1", trimmed, no empty elements
    std::vector<std::string> opNames; // lower case, trimmed, no empty elements
    std::vector<std::string> devices; // empty means every device
    bool saveChild = false;
    bool everyStep = false;
    std::vector<std::pair<uint64_t, uint64_t>> steps; // inclusive
    bool before = false;
    bool after = true;
    bool inBeforeOutAfter = false;
    bool inTensors = false;
    bool outTensors = false;
    bool tensorData = false; // otherwise only the description of each tensor
    bool tiling = false;
    bool dedupe = false;
    bool oddOnly = false; // data only of tensors that the search for overflows has to look at

    // Overflow check.
    bool overflowCheck = false;
    bool overflowStop = false;

    // Places and limits.
    std::string outputDir;    // absolute
    bool outputGiven = false; // an overflow report needs an explicit place
    std::string onnxHandOver; // directory of subprocess_info.txt, or empty
    std::string startTime;    // name of the directory below cpu_profiling
    uint64_t queueBytes = 0;  // 0 writes in the calling thread
    uint64_t minFreeBytes = 0;
    uint64_t patienceSeconds = 0; // how long the host waits for a writer that gives no sign of life
    int logLevel = 1;

    // Things in the environment that could not be understood; said once when the capture starts.
    std::vector<std::string> warnings;

    bool tensors() const { return tensor || stats; }
    bool graphs() const { return layer || model; }
    bool anything() const
    {
        return tensors() || graphs() || op || kernel || cpuProfiling || overflowCheck;
    }
    // An overflow check alone writes its report and nothing else.
    bool ledger() const { return tensors() || graphs() || op || kernel || cpuProfiling; }
};

// Reads the environment of this process; the output directory is resolved against its current
// directory, so that a later chdir() of the host does not scatter the dump.
Settings ReadSettings();

// The variables that ReadSettings looks at, for the ledger and for the writer process.
const std::vector<const char *> &SettingNames();

} // namespace ait

#endif
