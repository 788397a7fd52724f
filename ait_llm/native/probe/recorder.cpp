#include "recorder.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <unistd.h>

#include "host_path.h"
#include "json.h"
#include "log.h"
#include "matcher.h"
#include "replace_file.h"

namespace ait {
namespace {

constexpr const char *PRODUCER_VERSION = AIT_VERSION;
constexpr size_t MAX_THREADS = 65536; // threads of the host come and go
constexpr const char *NO_ROOM_TO_TELL = "the disk has no room left for the ledger to tell of it";

std::string HostName()
{
    char name[HOST_NAME_MAX + 1] = "";
    return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string EnvironmentObject(const std::vector<const char *> &names)
{
    JsonLine object;
    for (const char *name : names) {
        const char *value = getenv(name);
        if (value != nullptr) {
            object.Text(name, value);
        }
    }
    return object.Braces();
}

// ATB reports the tensors of a kernel in the directory of its operation.
std::string OperationDirectory(const IoReport &report)
{
    const auto &tensors = report.inputs.empty() ? report.outputs : report.inputs;
    return tensors.empty() ? std::string() : DirectoryOf(DirectoryOf(tensors.front().path));
}

std::string CsvField(const std::string &text)
{
    if (text.find_first_of(",\"\n\r") == std::string::npos) {
        return text;
    }
    std::string out = "\"";
    for (char c : text) {
        out += c == '"' ? "\"\"" : std::string(1, c);
    }
    return out + "\"";
}

TensorResult Lost(int error, const std::string &reason)
{
    TensorResult result;
    result.state = TensorState::FAILED;
    result.error = error;
    result.reason = reason;
    return result;
}

const char *const STATISTICS_HEADER =
    "op,type,phase,tensor,dtype,format,shape,bytes,max,min,mean,l2norm,nan,inf,path\n";

} // namespace

Recorder::Recorder(const Settings &settings, HostFacts facts, std::function<uint64_t()> backlog)
    : settings_(settings), facts_(std::move(facts)),
      directories_(Root(settings)), ledger_(directories_, facts_.pid),
      store_(settings, directories_, std::move(backlog)),
      units_([this](uint32_t thread, const Unit &unit) { UnitClosed(thread, unit); }),
      tables_(directories_), topology_(settings, directories_, facts_.pid),
      overflow_(settings, facts_.pid)
{
}

std::string Recorder::Root(const Settings &settings)
{
    return (settings.outputDir == "/" ? "" : settings.outputDir) + "/ait_dump";
}

void Recorder::Start()
{
    for (const std::string &warning : settings_.warnings) {
        Log(LogLevel::WARNING, warning);
    }
    if (!settings_.ledger()) {
        return;
    }
    JsonLine facts;
    facts.Text("producer", "atb_probe")
        .Text("version", PRODUCER_VERSION)
        .Number("abi", facts_.abi)
        .Number("pid", facts_.pid)
        .Text("host", HostName())
        .Text("time", UtcNow())
        .Text("executable", facts_.executable)
        .Text("writer", facts_.writer);
    if (!facts_.soc.empty()) {
        facts.Text("soc", facts_.soc);
    }
    facts.Raw("options", EnvironmentObject(SettingNames()))
        .Raw("environment", EnvironmentObject({"ATB_HOME_PATH", "ASCEND_TOOLKIT_HOME",
                                               "ASCEND_RT_VISIBLE_DEVICES", "RANK",
                                               "LOCAL_RANK", "WORLD_SIZE"}));
    ledger_.Start(facts_.device, facts);
    ledger_.Flush();
    if (directories_.Open("") < 0) {
        SayOnce(directories_.Root(), errno, ErrorText(errno));
    }
}

void Recorder::SayOnce(const std::string &about, int error, const std::string &reason)
{
    if (said_.size() < 100 && said_.insert(std::to_string(error)).second) {
        Log(LogLevel::ERROR, "cannot write " + about + ": " + reason +
                                 "; the program goes on, what is missing is listed in " +
                                 directories_.Root() + "/" + ledger_.Path());
    }
}

void Recorder::FileFailed(const std::string &path, int error, const std::string &reason)
{
    const std::string text = reason.empty() ? ErrorText(error) : reason;
    ++totals_.lostFiles;
    ledger_.Add(JsonLine()
                    .Text("kind", "file")
                    .Text("path", path)
                    .Text("state", "failed")
                    .Number("errno", error)
                    .Text("reason", text));
    SayOnce(path, error, text);
}

bool Recorder::RefuseTensor(uint32_t thread, const TensorHead &head)
{
    std::string reason = RefusePath(head.path);
    reason = reason.empty() ? RefuseDesc(head.desc) : "the path is refused: " + reason;
    if (reason.empty()) {
        return false;
    }
    TensorDone(thread, head, Lost(EINVAL, reason), Statistics(-1));
    return true;
}

void Recorder::BeforeUnit(uint32_t thread, const std::string &path)
{
    const auto found = threads_.find(thread);
    if (found == threads_.end() || !found->second.waiting) {
        return;
    }
    ThreadView &view = found->second;
    const std::string folder = DirectoryOf(path);
    const std::string directory = DirectoryOf(folder);
    const bool results =
        FileOf(folder) == "after" && DirectoryOf(directory) == OperationDirectory(view.report);
    if (results && (view.kernelDirectory.empty() || view.kernelDirectory == directory)) {
        view.kernelDirectory = directory;
    } else {
        FlushReport(thread);
    }
}

void Recorder::TensorDone(uint32_t thread, const TensorHead &head, const TensorResult &result,
                          const Statistics &stats)
{
    ledger_.SetDevice(DeviceOfPath(head.path));
    BeforeUnit(thread, head.path);
    Unit &unit = units_.Enter(thread, head.path);
    units_.Add(unit, head.path, result);
    if (result.state == TensorState::FAILED) {
        SayOnce("tensors/" + head.path, result.error, result.reason);
        return;
    }
    if (result.state == TensorState::SKIPPED) {
        return;
    }
    if (settings_.stats) {
        WriteStatistics(head, stats);
    }
}

void Recorder::Tensor(uint32_t thread, const TensorHead &head, const void *data)
{
    if (RefuseTensor(thread, head)) {
        return;
    }
    Statistics stats(head.desc.dtype.empty() ? -1 : strtoll(head.desc.dtype.c_str(), nullptr, 10));
    const TensorResult result =
        ledger_.HasRoom() ? store_.Save(head, data, stats) : Lost(ENOSPC, NO_ROOM_TO_TELL);
    TensorDone(thread, head, result, stats);
}

void Recorder::BeginTensor(uint32_t thread, uint64_t stream, const TensorHead &head)
{
    Stream &entry = streams_[stream];
    entry.thread = thread;
    if (RefuseTensor(thread, head)) {
        return;
    }
    if (!ledger_.HasRoom()) {
        TensorDone(thread, head, Lost(ENOSPC, NO_ROOM_TO_TELL), Statistics(-1));
    } else {
        entry.job = std::make_unique<TensorStore::Job>(store_, head);
    }
}

void Recorder::AddToTensor(uint64_t stream, const void *data, size_t size)
{
    const auto found = streams_.find(stream);
    if (found != streams_.end() && found->second.job != nullptr) {
        found->second.job->Add(data, size);
    }
}

void Recorder::EndTensor(uint64_t stream)
{
    const auto found = streams_.find(stream);
    if (found == streams_.end()) {
        return;
    }
    const Stream entry = std::move(found->second);
    streams_.erase(found);
    if (entry.job != nullptr) {
        const TensorResult result = entry.job->Finish();
        TensorDone(entry.thread, entry.job->Head(), result, entry.job->Stats());
    }
}

void Recorder::Written(uint32_t thread, const std::string &path, const TensorResult &result)
{
    TensorHead head;
    head.path = path;
    TensorDone(thread, head, result, Statistics(-1));
}

void Recorder::HostTensorCut(uint32_t thread, const std::string &path)
{
    const int parent = directories_.Open("tensors/" + DirectoryOf(path));
    if (parent >= 0) {
        static_cast<void>(unlinkat(parent, HostTemporary(facts_.pid).c_str(), 0));
    }
    Written(thread, path, Lost(0, "the process ended while it wrote the tensor"));
}

void Recorder::GivenUp(uint64_t operations, uint64_t files)
{
    totals_.dropped += operations;
    totals_.lostFiles += files;
}

void Recorder::CloseUnit(uint32_t thread, uint64_t lost, int error)
{
    units_.Close(thread, lost, error);
}

void Recorder::EmptyUnit(uint32_t thread, const std::string &directory, const std::string &phase)
{
    units_.Close(thread, 0, 0);
    Unit unit;
    unit.directory = directory;
    unit.phase = phase;
    ledger_.SetDevice(DeviceOfPath(directory));
    UnitClosed(thread, unit);
}

void Recorder::WriteUnitLine(const Unit &unit, const char *state)
{
    const UnitName name = ParseUnit(unit.directory);
    JsonLine line;
    line.Text("kind", "op")
        .Text("op", name.op)
        .Text("type", name.type)
        .Text("path", unit.directory)
        .Text("phase", unit.phase)
        .Number("step", name.step)
        .Text("state", state)
        .Number("tensors", static_cast<int64_t>(unit.saved + unit.described))
        .Number("bytes", static_cast<int64_t>(unit.bytes));
    if (unit.lost > 0) {
        line.Number("lost", static_cast<int64_t>(unit.lost))
            .Number("errno", unit.error)
            .Text("reason", unit.reason);
    }
    if (unit.cut) {
        line.Raw("cut", "true");
    }
    ledger_.Add(line);
}

void Recorder::UnitClosed(uint32_t thread, const Unit &unit)
{
    ++totals_.operations;
    totals_.tensors += unit.saved + unit.described;
    totals_.files += unit.saved + unit.described;
    totals_.bytes += unit.bytes;
    totals_.shared += unit.shared;
    if (unit.lost > 0) {
        ++totals_.failed;
        WriteUnitLine(unit, "failed");
    } else if (unit.saved > 0) {
        ++totals_.saved;
        WriteUnitLine(unit, "saved");
    } else if (unit.described > 0) {
        ++totals_.described;
        WriteUnitLine(unit, "described");
    } else {
        ++totals_.empty;
        WriteUnitLine(unit, "empty");
    }
    if (!settings_.kernel) {
        return;
    }
    if (threads_.size() >= MAX_THREADS) {
        threads_.clear();
    }
    ThreadView &view = threads_[thread];
    if (view.waiting && unit.phase == "after" && view.kernelDirectory == unit.directory) {
        FlushReport(thread);
    } else {
        view.lastUnit = unit.directory;
    }
}

void Recorder::WriteStatistics(const TensorHead &head, const Statistics &stats)
{
    const std::string folder = DirectoryOf(head.path);
    const UnitName name = ParseUnit(DirectoryOf(folder));
    const std::string root = head.path.substr(0, head.path.find('/'));
    std::string numbers = ",,,,,"; // no statistics
    if (stats.Supported() && head.given > 0) {
        numbers = NumberText(stats.Max()) + "," + NumberText(stats.Min()) + "," +
                  NumberText(stats.Mean()) + "," + NumberText(stats.L2Norm()) + "," +
                  std::to_string(stats.NanCount()) + "," + std::to_string(stats.InfCount());
    }
    std::string shape = head.desc.dims;
    for (char &c : shape) {
        c = c == ',' ? 'x' : c;
    }
    const std::string file = FileOf(head.path);
    const std::string row = name.op + "," + CsvField(name.type) + "," + FileOf(folder) + "," +
                            CsvField(file.substr(0, file.rfind('.'))) + "," + head.desc.dtype +
                            "," + head.desc.format + "," + shape + "," +
                            std::to_string(head.size) + "," + numbers + "," +
                            CsvField("tensors/" + head.path) + "\n";
    AppendRow("stats",
              "statistics/" + root + "/tensor_statistics_" + std::to_string(name.step) + ".csv",
              STATISTICS_HEADER, row);
}

void Recorder::SaveFile(const std::string &path, const void *data, size_t size)
{
    ledger_.SetDevice(DeviceOfPath(path.substr(path.find('/') + 1)));
    const std::string refused = RefusePath(path);
    if (!refused.empty()) {
        FileFailed(path, EINVAL, "the path is refused: " + refused);
        return;
    }
    if (!ledger_.HasRoom()) {
        FileFailed(path, ENOSPC, NO_ROOM_TO_TELL);
        return;
    }
    const int error = ReplaceWith(directories_, path, data, size);
    if (error != 0) {
        FileFailed(path, error, "");
    } else {
        ++totals_.files;
    }
}

void Recorder::Tiling(const std::string &path, const void *data, size_t size)
{
    SaveFile("tiling/" + path, data, size);
}

void Recorder::Parameters(const std::string &path, const std::string &json)
{
    const std::string text = json + "\n";
    SaveFile("tensors/" + path, text.data(), text.size());
}

void Recorder::Topology(const char *kind, const TopologyResult &result)
{
    if (result.path.empty()) {
        FileFailed(kind, EINVAL, result.reason);
    } else if (result.error != 0) {
        FileFailed(result.path, result.error, result.reason);
    } else {
        ++totals_.files;
        ++totals_.rows[kind];
    }
}

void Recorder::Graph(const std::string &opName, const std::string &json)
{
    Topology("layer", topology_.AddLayer(opName, json));
}

void Recorder::Model(const std::string &modelName, const std::string &json)
{
    Topology("model", topology_.AddModel(modelName, json));
}

void Recorder::AppendRow(const char *table, const std::string &path, const std::string &header,
                         const std::string &row)
{
    const int error = tables_.Append(path, header, row);
    if (error != 0) {
        FileFailed(path, error, "");
    } else {
        ++totals_.rows[table];
    }
}

void Recorder::WriteReport(IoReport &report, const std::string &kernelDirectory)
{
    const std::string prefix = directories_.Root() + "/tensors/";
    const auto locate = [&](std::vector<IoTensor> &tensors, bool isInput) {
        for (IoTensor &tensor : tensors) {
            const std::string directory = kernelDirectory.empty()
                                              ? DirectoryOf(DirectoryOf(tensor.path))
                                              : kernelDirectory;
            tensor.path = prefix + units_.SavedPath(tensor.path, directory, isInput);
        }
    };
    // Without a directory of its own a kernel must not be given the files of its operation.
    if (!report.kernel || !kernelDirectory.empty()) {
        locate(report.inputs, true);
        locate(report.outputs, false);
    } else {
        for (auto *tensors : {&report.inputs, &report.outputs}) {
            for (IoTensor &tensor : *tensors) {
                tensor.path = prefix + tensor.path;
            }
        }
    }
    const std::string folder =
        report.kernel ? "kernel_io_tensors/" : "operation_io_tensors/";
    const std::string name = report.kernel ? "/kernel_tensors_" : "/operation_tensors_";
    const std::string path = folder + std::to_string(facts_.pid) + name +
                             std::to_string(report.executeCount) + ".csv";
    AppendRow(report.kernel ? "kernel" : "op", path, IO_TABLE_HEADER,
              IoTableRow(report, tables_.NextRow(path)));
}

void Recorder::FlushReport(uint32_t thread)
{
    const auto found = threads_.find(thread);
    if (found == threads_.end() || !found->second.waiting) {
        return;
    }
    ThreadView &view = found->second;
    view.waiting = false;
    IoReport report = std::move(view.report);
    const std::string directory = std::move(view.kernelDirectory);
    view.report = IoReport();
    view.kernelDirectory.clear();
    view.lastUnit.clear();
    WriteReport(report, directory);
}

void Recorder::Report(uint32_t thread, IoReport report)
{
    units_.Close(thread, 0, 0);
    FlushReport(thread);
    if (!report.kernel || !settings_.tensors()) {
        WriteReport(report, "");
        return;
    }
    ThreadView &view = threads_[thread];
    const std::string operation = OperationDirectory(report);
    const bool saved = !operation.empty() && DirectoryOf(view.lastUnit) == operation;
    view.kernelDirectory = saved ? view.lastUnit : "";
    view.report = std::move(report);
    view.waiting = true;
}

std::string Recorder::ProfilingDirectory()
{
    // mkdir decides which of several processes owns the plain name.
    const std::string pid = std::to_string(facts_.pid);
    std::string name = settings_.startTime.empty() ? pid : settings_.startTime;
    if (!RefuseName(name, "").empty()) {
        name = pid;
    }
    if (!directories_.Claim("cpu_profiling/" + name) && errno == EEXIST && name != pid) {
        name += "_" + pid;
    }
    return name;
}

void Recorder::Statistic(uint64_t executeCount, const std::string &opName, const std::string &text)
{
    if (profilingDirectory_.empty()) {
        profilingDirectory_ = ProfilingDirectory();
    }
    const std::string path = "cpu_profiling/" + profilingDirectory_ + "/operation_statistic_" +
                             std::to_string(executeCount) + ".txt";
    std::string line = "[" + opName + "]:" + text;
    for (char &c : line) {
        c = c == '\n' || c == '\r' ? ' ' : c;
    }
    AppendRow("cpu_profiling", path, "", line + "\n");
}

void Recorder::Overflow(const std::string &kernelPath)
{
    const int error = overflow_.Add(kernelPath);
    if (error != 0) {
        SayOnce("the overflow report", error, ErrorText(error));
    }
}

void Recorder::Finish(const std::string &end, bool cut)
{
    // Tensors that never became complete.
    for (auto &entry : streams_) {
        if (entry.second.job == nullptr) {
            continue;
        }
        TensorDone(entry.second.thread, entry.second.job->Head(),
                   Lost(0, "the process ended while the tensor was being handed over"),
                   entry.second.job->Stats());
    }
    streams_.clear();
    units_.CloseAll(cut);
    for (auto &entry : threads_) {
        FlushReport(entry.first);
    }
    overflow_.Finish();
    if (!settings_.ledger()) {
        return;
    }
    JsonLine rows;
    for (const char *table : {"op", "kernel", "cpu_profiling"}) {
        rows.Number(table, static_cast<int64_t>(totals_.rows[table]));
    }
    for (const char *table : {"layer", "model", "stats"}) {
        if (totals_.rows[table] > 0) {
            rows.Number(table, static_cast<int64_t>(totals_.rows[table]));
        }
    }
    JsonLine seal;
    const auto add = [&](const char *key, uint64_t value) {
        seal.Number(key, static_cast<int64_t>(value));
    };
    seal.Text("kind", "seal").Text("time", UtcNow()).Text("end", end);
    add("operations", totals_.operations + totals_.dropped);
    add("saved", totals_.saved);
    add("described", totals_.described);
    add("empty", totals_.empty);
    add("failed", totals_.failed);
    add("dropped", totals_.dropped);
    add("tensors", totals_.tensors);
    add("files", totals_.files);
    add("bytes", totals_.bytes);
    add("shared", totals_.shared);
    add("lost_files", totals_.lostFiles);
    seal.Raw("rows", rows.Braces());
    if (!profilingDirectory_.empty()) {
        seal.Text("cpu_profiling", profilingDirectory_);
    }
    ledger_.Seal(seal);
}

} // namespace ait
