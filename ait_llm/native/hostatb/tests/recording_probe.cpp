// A probe that records every call as one JSON object per line, in the form of the reference traces.
//
// RECORDING_PROBE_FILE     where to write; without it nothing is recorded and all answers are false
// RECORDING_PROBE_ANSWERS  "IsTensorNeedSave=1;IsSaveParam=0;..." Functions not named answer false.
//                          IsTensorNeedSave also takes maxlen:N (at most N ids) and prefix:0_1.
//                          seq:0110 are the answers of the first calls, then false. The value throw
//                          makes any function throw std::runtime_error.
// RECORDING_PROBE_WAIT     "A:B:N": a call of A waits until B has been called N times
//
// The file is opened at the first call, so that a forked child can choose its own.
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "atb_probe.h"

namespace {

std::string Variable(const char *name)
{
    const char *value = std::getenv(name);
    return value != nullptr ? value : "";
}

std::vector<std::string> Split(const std::string &text, char separator)
{
    std::vector<std::string> parts;
    size_t start = 0;
    while (start <= text.size()) {
        const size_t end = std::min(text.find(separator, start), text.size());
        parts.push_back(text.substr(start, end - start));
        start = end + 1;
    }
    return parts;
}

std::string Quoted(const std::string &text)
{
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
        }
        quoted += c;
    }
    return quoted + '"';
}

uint32_t Crc32(const void *data, uint64_t size)
{
    static const auto table = [] {
        std::array<uint32_t, 256> entries{};
        for (uint32_t i = 0; i < entries.size(); ++i) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) {
                value = (value & 1) != 0 ? 0xEDB88320U ^ (value >> 1) : value >> 1;
            }
            entries[i] = value;
        }
        return entries;
    }();
    uint32_t crc = 0xFFFFFFFFU;
    const auto *bytes = static_cast<const uint8_t *>(data);
    for (uint64_t i = 0; i < size; ++i) {
        crc = table[(crc ^ bytes[i]) & 0xFF] ^ (crc >> 8);
    }
    return ~crc;
}

class Recorder {
public:
    // Leaky: calls may come from other threads while the process exits.
    static Recorder &Get()
    {
        static Recorder *recorder = new Recorder;
        return *recorder;
    }

    // The answer to the next call.
    std::string Answer(const std::string &function)
    {
        const auto found = answers_.find(function);
        if (found == answers_.end()) {
            return "0";
        }
        const std::string sequence = "seq:";
        if (found->second.compare(0, sequence.size(), sequence) != 0) {
            return found->second;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        const size_t position = sequence.size() + static_cast<size_t>(calls_[function]);
        return position < found->second.size() ? found->second.substr(position, 1) : "0";
    }

    void Write(const std::string &event, const std::string &function, const std::string &body)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!wait_.empty() && function == wait_[0]) {
            changed_.wait_for(lock, std::chrono::seconds(20),
                              [&] { return calls_[wait_[1]] >= std::stoi(wait_[2]); });
        }
        ++calls_[function];
        changed_.notify_all();
        if (file_ != nullptr) {
            const auto thread = threads_.emplace(std::this_thread::get_id(), threads_.size()).first;
            std::fprintf(file_, "{\"seq\":%d,\"tid\":\"T%zu\",\"ev\":\"%s\"%s}\n", sequence_++,
                         thread->second, event.c_str(), body.c_str());
            std::fflush(file_);
        }
    }

private:
    Recorder()
    {
        const std::string path = Variable("RECORDING_PROBE_FILE");
        file_ = path.empty() ? nullptr : std::fopen(path.c_str(), "w");
        for (const std::string &answer : Split(Variable("RECORDING_PROBE_ANSWERS"), ';')) {
            const size_t equals = answer.find('=');
            if (equals != std::string::npos) {
                answers_[answer.substr(0, equals)] = answer.substr(equals + 1);
            }
        }
        if (!Variable("RECORDING_PROBE_WAIT").empty()) {
            wait_ = Split(Variable("RECORDING_PROBE_WAIT"), ':');
        }
    }

    std::FILE *file_ = nullptr;
    std::map<std::string, std::string> answers_;
    std::vector<std::string> wait_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, int> calls_;
    std::map<std::thread::id, size_t> threads_;
    int sequence_ = 0;
};

void Call(const std::string &function, const std::string &args, const char *result = nullptr)
{
    Recorder &recorder = Recorder::Get();
    std::string body = ",\"fn\":" + Quoted(function);
    body += args.empty() ? "" : ",\"args\":{" + args + "}";
    body += result == nullptr ? "" : std::string(",\"ret\":") + result;
    recorder.Write("probe", function, body);
    if (recorder.Answer(function) == "throw") {
        throw std::runtime_error("the probe was told to throw in " + function);
    }
}

bool Ask(const std::string &function, const std::string &args = "")
{
    const bool answer = Recorder::Get().Answer(function) == "1";
    Call(function, args, answer ? "true" : "false");
    return answer;
}

std::string Number(const char *name, uint64_t value)
{
    return Quoted(name) + ":" + std::to_string(value);
}

std::string Text(const char *name, const std::string &value)
{
    return Quoted(name) + ":" + Quoted(value);
}

std::string TensorList(const char *name, const std::vector<atb::Probe::Tensor> &tensors)
{
    std::string list;
    for (const atb::Probe::Tensor &tensor : tensors) {
        list += (list.empty() ? "{" : ",{") + Text("dtype", tensor.dtype) + "," +
                Text("format", tensor.format) + "," + Text("shape", tensor.shape) + "," +
                Text("filePath", tensor.filePath) + "}";
    }
    return Quoted(name) + ":[" + list + "]";
}

bool IsNeeded(const std::vector<int64_t> &ids, const std::string &rule)
{
    const std::vector<std::string> parts = Split(rule, ':');
    if (parts[0] == "maxlen") {
        return ids.size() <= std::stoul(parts[1]);
    }
    if (parts[0] == "prefix") {
        const std::vector<std::string> prefix = Split(parts[1], '_');
        for (size_t i = 0; i < prefix.size(); ++i) {
            if (i >= ids.size() || std::to_string(ids[i]) != prefix[i]) {
                return false;
            }
        }
        return true;
    }
    return rule == "1";
}

} // namespace

// Lets the program under test add events of its own.
extern "C" void recording_probe_mark(const char *event, const char *name, const char *value)
{
    Recorder::Get().Write(event, "", "," + Text(name, value));
}

namespace atb {

bool Probe::IsTensorNeedSave(const std::vector<int64_t> &ids, const std::string &opType)
{
    std::string list;
    for (const int64_t id : ids) {
        list += (list.empty() ? "" : ",") + std::to_string(id);
    }
    const bool needed = IsNeeded(ids, Recorder::Get().Answer("IsTensorNeedSave"));
    Call("IsTensorNeedSave", "\"ids\":[" + list + "]," + Text("opType", opType),
         needed ? "true" : "false");
    return needed;
}

bool Probe::IsSaveTensorData() { return Ask("IsSaveTensorData"); }
bool Probe::IsSaveTensorDesc() { return Ask("IsSaveTensorDesc"); }
bool Probe::IsExecuteCountInRange(const uint64_t executeCount)
{
    return Ask("IsExecuteCountInRange", Number("executeCount", executeCount));
}
bool Probe::IsSaveTensorBefore() { return Ask("IsSaveTensorBefore"); }
bool Probe::IsSaveTensorAfter() { return Ask("IsSaveTensorAfter"); }
bool Probe::IsSaveTensorInSpecificDir(const std::string &tensorDir)
{
    return Ask("IsSaveTensorInSpecificDir", Text("tensorDir", tensorDir));
}

void Probe::SaveTensor(const std::string &format, const std::string &dtype,
                       const std::string &dims, const void *hostData, uint64_t dataSize,
                       const std::string &filePath)
{
    std::array<char, 9> crc{};
    std::snprintf(crc.data(), crc.size(), "%08x", hostData == nullptr ? 0 : Crc32(hostData, dataSize));
    Call("SaveTensor", Text("format", format) + "," + Text("dtype", dtype) + "," +
                           Text("dims", dims) + ",\"hostDataNull\":" +
                           (hostData == nullptr ? "true" : "false") + "," +
                           Number("dataSize", dataSize) + "," + Text("filePath", filePath) + "," +
                           Text("dataCrc32", crc.data()));
}

bool Probe::IsSaveTiling() { return Ask("IsSaveTiling"); }
void Probe::SaveTiling(const uint8_t *buffer, uint64_t size, const std::string &filePath)
{
    Call("SaveTiling", std::string("\"bufferNull\":") + (buffer == nullptr ? "true" : "false") +
                           "," + Number("tilingBufferSize", size) + "," +
                           Text("filePath", filePath));
}
bool Probe::IsSaveParam() { return Ask("IsSaveParam"); }
void Probe::SaveParam(const std::string &param, const std::string &filePath)
{
    Call("SaveParam", Text("param", param) + "," + Text("filePath", filePath));
}

bool Probe::ReportOperationIOTensorEnable() { return Ask("ReportOperationIOTensorEnable"); }
void Probe::ReportOperationIOTensor(const size_t executeCount, const std::string &opName,
                                    const std::string &opParam,
                                    const std::vector<Tensor> &inTensors,
                                    const std::vector<Tensor> &outTensors)
{
    Call("ReportOperationIOTensor",
         Number("executeCount", executeCount) + "," + Text("opName", opName) + "," +
             Text("opParam", opParam) + "," + TensorList("inTensors", inTensors) + "," +
             TensorList("outTensors", outTensors));
}
bool Probe::ReportKernelIOTensorEnable() { return Ask("ReportKernelIOTensorEnable"); }
void Probe::ReportKernelIOTensor(const size_t executeCount, const std::string &opName,
                                 const std::string &opParam, const std::vector<Tensor> &inTensors,
                                 const std::vector<Tensor> &outTensors)
{
    Call("ReportKernelIOTensor",
         Number("executeCount", executeCount) + "," + Text("opName", opName) + "," +
             Text("opParam", opParam) + "," + TensorList("inTensors", inTensors) + "," +
             TensorList("outTensors", outTensors));
}

bool Probe::ReportOperationStatisticEnable() { return Ask("ReportOperationStatisticEnable"); }
void Probe::ReportOperationSetupStatistic(const uint64_t executeCount, const std::string &opName,
                                          const std::string &st)
{
    Call("ReportOperationSetupStatistic", Number("executeCount", executeCount) + "," +
                                              Text("opName", opName) + "," + Text("st", st));
}
void Probe::ReportOperationExecuteStatistic(const uint64_t executeCount,
                                            const std::string &opName, const std::string &st)
{
    Call("ReportOperationExecuteStatistic", Number("executeCount", executeCount) + "," +
                                                Text("opName", opName) + "," + Text("st", st));
}
bool Probe::ReportOperationGraphEnable() { return Ask("ReportOperationGraphEnable"); }
void Probe::ReportOperationGraph(const std::string &opName, const std::string &graph)
{
    Call("ReportOperationGraph", Text("opName", opName) + "," + Text("graph", graph));
}

bool Probe::IsOverflowCheck() { return Ask("IsOverflowCheck"); }
bool Probe::IsOverflowStop() { return Ask("IsOverflowStop"); }
void Probe::ReportOverflowKernel(const std::string &kernelPath)
{
    Call("ReportOverflowKernel", Text("kernelPath", kernelPath));
}
void Probe::UpdateConfig() { Call("UpdateConfig", ""); }

} // namespace atb

namespace atb_speed {

bool SpeedProbe::IsReportModelTopoInfo(const std::string &modelName)
{
    return Ask("IsReportModelTopoInfo", Text("modelName", modelName));
}
void SpeedProbe::ReportModelTopoInfo(const std::string &modelName, const std::string &graph)
{
    Call("ReportModelTopoInfo", Text("modelName", modelName) + "," + Text("graph", graph));
}

} // namespace atb_speed
