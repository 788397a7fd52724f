#include "settings.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <unistd.h>

#include "matcher.h"

namespace ait {
namespace {

constexpr uint64_t DEFAULT_QUEUE_BYTES = 268435456;
constexpr uint64_t DEFAULT_MIN_FREE_BYTES = 268435456;
constexpr uint64_t DEFAULT_PATIENCE_SECONDS = 60;
constexpr uint64_t LONGEST_PATIENCE_SECONDS = 86400;

std::string Get(const char *name)
{
    const char *value = getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

uint64_t GetNumber(const char *name, const char *unit, uint64_t fallback,
                   std::vector<std::string> &warnings)
{
    const std::string text = Trim(Get(name));
    uint64_t value = 0;
    if (text.empty()) {
        return fallback;
    }
    if (!ParseUnsigned(text, value)) {
        warnings.push_back(std::string(name) + "='" + text + "' is not a number of " + unit +
                           "; using " + std::to_string(fallback));
        return fallback;
    }
    return value;
}

std::string CurrentDirectory()
{
    char buffer[PATH_MAX];
    return getcwd(buffer, sizeof(buffer)) == nullptr ? std::string("/") : std::string(buffer);
}

// Resolves links where the directory exists; a directory that does not yet is made absolute only.
std::string Resolve(std::string path)
{
    if (path.empty()) {
        path = ".";
    }
    char buffer[PATH_MAX];
    if (realpath(path.c_str(), buffer) != nullptr) {
        return buffer;
    }
    while (path.size() > 1 && path.back() == '/') {
        path.pop_back();
    }
    return path[0] == '/' ? path : CurrentDirectory() + "/" + path;
}

void ReadTypes(Settings &settings)
{
    for (const std::string &token : Split(Get("ATB_DUMP_TYPE"), '|')) {
        settings.tensor |= token == "tensor";
        settings.stats |= token == "stats";
        settings.layer |= token == "layer";
        settings.model |= token == "model";
        settings.op |= token == "op";
        settings.kernel |= token == "kernel";
        settings.cpuProfiling |= token == "cpu_profiling";
        settings.onnx |= token == "onnx";
    }
}

void ReadSelection(Settings &settings)
{
    settings.ids = TrimmedElements(Get("ATB_SAVE_TENSOR_IDS"));
    settings.opNames = TrimmedElements(LowerCase(Get("ATB_SAVE_TENSOR_RUNNER")));
    settings.devices = TrimmedElements(Get("ATB_DEVICE_ID"));
    settings.saveChild = Get("ATB_SAVE_CHILD") == "1";
    settings.steps = ParseSteps(Get("ATB_SAVE_TENSOR_RANGE"), settings.everyStep, settings.warnings);

    const std::string time = Get("ATB_SAVE_TENSOR_TIME");
    settings.before = time == "0" || time == "2";
    settings.after = time != "0";
    if (Get("ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER") == "1") {
        settings.inBeforeOutAfter = true;
        settings.before = true;
        settings.after = true;
    }
    const std::string part = Get("ATB_SAVE_TENSOR_PART");
    settings.inTensors = part == "0" || part == "2";
    settings.outTensors = part == "1" || part == "2";
    if (settings.tensors() && !settings.inTensors && !settings.outTensors) {
        settings.warnings.push_back(
            "ATB_SAVE_TENSOR_PART is not 0, 1 or 2, so that no tensor is saved");
    }
    settings.tensorData = settings.tensor && Get("ATB_SAVE_TENSOR") == "1";
    const std::string tiling = Get("ATB_SAVE_TILING");
    settings.tiling = !tiling.empty() && tiling != "0";
    settings.dedupe = Get("AIT_PROBE_DEDUPE") == "1";
    // What is odd is known from the statistics.
    settings.oddOnly = settings.stats && Get("AIT_PROBE_ODD_ONLY") == "1";
}

// Variables that were set by hand and do not select anything: the capture would be empty in silence.
void WarnOfNothing(Settings &settings)
{
    const std::string types = Get("ATB_DUMP_TYPE");
    if (!settings.anything()) {
        if (!types.empty()) {
            settings.warnings.push_back("nothing is dumped: ATB_DUMP_TYPE='" + types +
                                        "' names no type; set it to tensor for tensors");
        } else if (!Get("ATB_SAVE_TENSOR").empty()) {
            settings.warnings.push_back(
                "nothing is dumped: ATB_SAVE_TENSOR is set and ATB_DUMP_TYPE is not; set "
                "ATB_DUMP_TYPE=tensor, ATB_SAVE_TENSOR_RANGE and ATB_SAVE_TENSOR_PART too, or "
                "start the program with ait llm dump --exec");
        }
    } else if (settings.tensors() && Trim(Get("ATB_SAVE_TENSOR_RANGE")).empty()) {
        settings.warnings.push_back("ATB_SAVE_TENSOR_RANGE is not set, so that no tensor is saved; "
                                    "set it to all, or to pairs such as 0,3");
    }
}

} // namespace

const std::vector<const char *> &SettingNames()
{
    static const auto *names = new std::vector<const char *>{
        "ATB_DUMP_TYPE",        "ATB_SAVE_TENSOR",       "ATB_SAVE_TENSOR_IDS",
        "ATB_SAVE_TENSOR_RUNNER", "ATB_SAVE_CHILD",      "ATB_SAVE_TENSOR_RANGE",
        "ATB_SAVE_TENSOR_TIME", "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER",
        "ATB_SAVE_TENSOR_PART", "ATB_SAVE_TILING",       "ATB_OUTPUT_DIR",
        "ATB_DEVICE_ID",        "ATB_DUMP_SUB_PROC_INFO_SAVE_PATH",
        "ATB_AIT_LOG_LEVEL",    "ATB_CHECK_TYPE",        "ATB_EXIT",
        "AIT_PROBE_QUEUE_BYTES", "AIT_PROBE_MIN_FREE_BYTES", "AIT_PROBE_DEDUPE",
        "AIT_PROBE_ODD_ONLY",   "AIT_PROBE_START_TIME",  "AIT_PROBE_PATIENCE_SECONDS"};
    return *names;
}

Settings ReadSettings()
{
    Settings settings;
    ReadTypes(settings);
    ReadSelection(settings);

    settings.overflowCheck = Get("ATB_CHECK_TYPE").find('1') != std::string::npos;
    settings.overflowStop = Get("ATB_EXIT") == "1";

    const std::string output = Get("ATB_OUTPUT_DIR");
    settings.outputGiven = !output.empty();
    settings.outputDir = Resolve(output);
    if (settings.onnx && settings.graphs()) {
        const std::string handOver = Get("ATB_DUMP_SUB_PROC_INFO_SAVE_PATH");
        settings.onnxHandOver = handOver.empty() ? std::string() : Resolve(handOver);
    }
    settings.startTime = Get("AIT_PROBE_START_TIME");

    settings.queueBytes =
        GetNumber("AIT_PROBE_QUEUE_BYTES", "bytes", DEFAULT_QUEUE_BYTES, settings.warnings);
    settings.minFreeBytes =
        GetNumber("AIT_PROBE_MIN_FREE_BYTES", "bytes", DEFAULT_MIN_FREE_BYTES, settings.warnings);
    WarnOfNothing(settings);
    settings.patienceSeconds = std::min(
        GetNumber("AIT_PROBE_PATIENCE_SECONDS", "seconds", DEFAULT_PATIENCE_SECONDS,
                  settings.warnings),
        LONGEST_PATIENCE_SECONDS);

    uint64_t level = 0;
    if (ParseUnsigned(Get("ATB_AIT_LOG_LEVEL"), level) && level <= 5) {
        settings.logLevel = static_cast<int>(level);
    }
    return settings;
}

} // namespace ait
