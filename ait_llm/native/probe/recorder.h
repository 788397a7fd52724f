// Everything a capture writes. Used by one thread at a time: the writer process, or the host's
// threads one after the other where there is none.
#ifndef AIT_PROBE_RECORDER_H
#define AIT_PROBE_RECORDER_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "directories.h"
#include "io_table.h"
#include "ledger.h"
#include "overflow.h"
#include "settings.h"
#include "table_files.h"
#include "tensor_store.h"
#include "topology_store.h"
#include "unit_tracker.h"

namespace ait {

struct HostFacts {
    int pid = 0;
    int abi = 0;
    std::string device; // empty where unknown
    std::string soc;    // the chip, empty where unknown
    std::string executable;
    const char *writer = ""; // "process" or "host"
};

class Recorder {
public:
    Recorder(const Settings &settings, HostFacts facts, std::function<uint64_t()> backlog);

    void Start();
    // `end` as in the ledger; `cut` where the process may have been in the middle of something.
    void Finish(const std::string &end, bool cut);

    // A tensor whose bytes lie together.
    void Tensor(uint32_t thread, const TensorHead &head, const void *data);
    // A tensor in pieces, told apart by a number of the sender.
    void BeginTensor(uint32_t thread, uint64_t stream, const TensorHead &head);
    void AddToTensor(uint64_t stream, const void *data, size_t size);
    void EndTensor(uint64_t stream);

    // A tensor that the host has written itself.
    void Written(uint32_t thread, const std::string &path, const TensorResult &result);

    // No more tensors of the unit that the thread was saving.
    void CloseUnit(uint32_t thread, uint64_t lost, int error);
    // The host announced tensors and handed over none. The directory may be unknown.
    void EmptyUnit(uint32_t thread, const std::string &directory, const std::string &phase);

    void Tiling(const std::string &path, const void *data, size_t size);
    void Parameters(const std::string &path, const std::string &json);
    void Graph(const std::string &opName, const std::string &json);
    void Model(const std::string &modelName, const std::string &json);
    void Report(uint32_t thread, IoReport report);
    void Statistic(uint64_t executeCount, const std::string &opName, const std::string &text);
    void Overflow(const std::string &kernelPath);

    // Nothing else is waiting: what was collected for one larger write goes to disk.
    void Flush() { ledger_.Flush(); }
    // The name of files that the host writes itself, until they are complete.
    static std::string HostTemporary(int pid) { return ".ait-" + std::to_string(pid) + "-host"; }
    // What the host gave up because this process did not take it in time.
    void GivenUp(uint64_t operations, uint64_t files);
    // The host ended while it wrote that tensor.
    void HostTensorCut(uint32_t thread, const std::string &path);
    static std::string Root(const Settings &settings);

private:
    struct Stream {
        uint32_t thread = 0;
        std::unique_ptr<TensorStore::Job> job; // null where the path was refused
    };
    // A kernel is reported before its outputs are saved, so its row waits for their names.
    struct ThreadView {
        std::string lastUnit; // directory of the unit that was saved last
        bool waiting = false;
        IoReport report;
        std::string kernelDirectory; // "" while unknown
    };
    struct Totals {
        uint64_t operations = 0, saved = 0, described = 0, empty = 0, failed = 0;
        uint64_t tensors = 0, files = 0, bytes = 0, shared = 0, lostFiles = 0, dropped = 0;
        std::map<std::string, uint64_t> rows;
    };

    bool RefuseTensor(uint32_t thread, const TensorHead &head);
    void TensorDone(uint32_t thread, const TensorHead &head, const TensorResult &result,
                    const Statistics &stats);
    void BeforeUnit(uint32_t thread, const std::string &path);
    void UnitClosed(uint32_t thread, const Unit &unit);
    void WriteUnitLine(const Unit &unit, const char *state);
    void WriteStatistics(const TensorHead &head, const Statistics &stats);
    void SaveFile(const std::string &path, const void *data, size_t size);
    void FlushReport(uint32_t thread);
    void WriteReport(IoReport &report, const std::string &kernelDirectory);
    void AppendRow(const char *table, const std::string &path, const std::string &header,
                   const std::string &row);
    std::string ProfilingDirectory();
    void Topology(const char *kind, const TopologyResult &result);
    void FileFailed(const std::string &path, int error, const std::string &reason);
    // Each kind of trouble is said once.
    void SayOnce(const std::string &about, int error, const std::string &reason);

    const Settings &settings_;
    HostFacts facts_;
    Directories directories_;
    Ledger ledger_;
    TensorStore store_;
    UnitTracker units_;
    TableFiles tables_;
    TopologyStore topology_;
    OverflowReport overflow_;
    std::unordered_map<uint64_t, Stream> streams_;
    std::unordered_map<uint32_t, ThreadView> threads_;
    Totals totals_;
    std::set<std::string> said_;
    std::string profilingDirectory_;
};

} // namespace ait

#endif
