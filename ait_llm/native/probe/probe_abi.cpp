// The functions that replace ATB's own. No exception leaves any of them: ATB would turn it into a
// failed operation, and in some places the program would end.
#include "atb_probe.h"

#include <cerrno>
#include <exception>
#include <new>

#include "log.h"
#include "matcher.h"
#include "session.h"

namespace {

using ait::IoTensor;
using ait::Kind;
using ait::MetaWriter;
using ait::Session;

void SayException(const char *function, const char *what) noexcept
{
    try {
        ait::Log(ait::LogLevel::ERROR, std::string(function) + ": " + what);
    } catch (const std::exception &) {
        // Without memory even for one line there is nothing left to say it with.
        return;
    }
}

// Runs `body`; `fallback` is the answer where it fails.
template <typename Result, typename Body>
Result Guard(const char *function, Result fallback, Body body) noexcept
{
    try {
        return body();
    } catch (const std::exception &error) {
        SayException(function, error.what());
    }
    return fallback;
}

template <typename Body> void Guard(const char *function, Body body) noexcept
{
    Guard(function, false, [&] {
        body();
        return true;
    });
}

// The session, or null where even that cannot be had.
Session *Current() noexcept
{
    return Guard("starting the capture", static_cast<Session *>(nullptr),
                 [] { return &Session::Get(); });
}

// A gate whose answer never changes; it also ends the unit whose tensors came before it.
template <typename Answer> inline bool Gate(const char *function, Answer answer) noexcept
{
    Session *session = Current();
    if (session == nullptr) {
        return false;
    }
    if (session->gates.tensors) {
        Guard(function, [&] { session->EndUnit(); });
    }
    return answer(session->gates);
}

std::vector<IoTensor> Copy(const std::vector<atb::Probe::Tensor> &tensors)
{
    std::vector<IoTensor> copies;
    copies.reserve(tensors.size());
    for (const atb::Probe::Tensor &tensor : tensors) {
        copies.push_back({tensor.dtype, tensor.format, tensor.shape, tensor.path});
    }
    return copies;
}

void SendReport(bool kernel, size_t executeCount, const std::string &opName,
                const std::string &opParam, const std::vector<atb::Probe::Tensor> &inTensors,
                const std::vector<atb::Probe::Tensor> &outTensors)
{
    Session &session = Session::Get();
    if (!(kernel ? session.gates.kernel : session.gates.op)) {
        return;
    }
    const std::vector<atb::Probe::Tensor> &named = inTensors.empty() ? outTensors : inTensors;
    if (!ait::MatchesStep(session.settings, executeCount) ||
        !session.WantsDevice(named.empty() ? std::string() : named.front().path)) {
        return;
    }
    MetaWriter meta;
    meta.Number(kernel ? 1 : 0).Number(executeCount).Text(opName).Text(opParam);
    meta.Tensors(Copy(inTensors)).Tensors(Copy(outTensors));
    session.Send(Kind::REPORT, meta);
}

void SendStatistic(uint64_t executeCount, const std::string &opName, const std::string &text)
{
    Session &session = Session::Get();
    if (session.gates.statistic) {
        session.Send(Kind::STATISTIC, MetaWriter().Number(executeCount).Text(opName).Text(text));
    }
}

} // namespace

namespace atb {

bool Probe::IsTensorNeedSave(const std::vector<int64_t> &ids, const std::string &opType)
{
    return Guard(__func__, false, [&] {
        Session &session = Session::Get();
        if (!session.gates.tensors) {
            return false;
        }
        session.EndUnit();
        return ait::MatchesOperation(session.settings, ids, opType) && session.WantsDevice("");
    });
}

bool Probe::IsSaveTensorData()
{
    return Guard(__func__, false, [] {
        Session &session = Session::Get();
        session.Announce();
        return session.gates.data;
    });
}

bool Probe::IsSaveTensorDesc()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.description; });
}

bool Probe::IsExecuteCountInRange(const uint64_t executeCount)
{
    return Guard(__func__, false, [&] {
        Session &session = Session::Get();
        session.EndUnit();
        return ait::MatchesStep(session.settings, executeCount);
    });
}

bool Probe::IsSaveTensorBefore()
{
    return Guard(__func__, false, [] {
        Session &session = Session::Get();
        session.SetPhase("before");
        return session.gates.before;
    });
}

bool Probe::IsSaveTensorAfter()
{
    return Guard(__func__, false, [] {
        Session &session = Session::Get();
        session.SetPhase("after");
        return session.gates.after;
    });
}

bool Probe::IsSaveTensorInSpecificDir(const std::string &tensorDir)
{
    return Guard(__func__, false, [&] {
        Session &session = Session::Get();
        if (!session.gates.tensors) {
            return true; // no filter of ours speaks against it; the other gates decide
        }
        session.SetDirectory(tensorDir);
        return ait::MatchesDevice(session.settings, tensorDir);
    });
}

void Probe::SaveTensor(const std::string &format, const std::string &dtype,
                       const std::string &dims, const void *hostData, uint64_t dataSize,
                       const std::string &filePath)
{
    try {
        Session::Get().SaveTensor(format, dtype, dims, hostData, dataSize, filePath);
    } catch (const std::bad_alloc &error) {
        SayException(__func__, error.what());
        if (Session *session = Current()) {
            session->NoteLost(ENOMEM);
        }
    } catch (const std::exception &error) {
        SayException(__func__, error.what());
        if (Session *session = Current()) {
            session->NoteLost(EIO);
        }
    }
}

bool Probe::IsSaveTiling()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.tiling; });
}

void Probe::SaveTiling(const uint8_t *buffer, uint64_t size, const std::string &filePath)
{
    Guard(__func__, [&] {
        Session &session = Session::Get();
        if (session.gates.tiling && buffer != nullptr && size > 0 &&
            ait::MatchesDevice(session.settings, filePath)) {
            session.Send(Kind::TILING, MetaWriter().Text(filePath), buffer, size);
        }
    });
}

bool Probe::IsSaveParam()
{
    return Gate(__func__, [](const Session::Gates &) { return true; });
}

void Probe::SaveParam(const std::string &param, const std::string &filePath)
{
    Guard(__func__, [&] {
        Session &session = Session::Get();
        if (session.gates.tensors && ait::MatchesDevice(session.settings, filePath)) {
            session.Send(Kind::PARAMETERS, MetaWriter().Text(filePath).Text(param));
        }
    });
}

bool Probe::ReportOperationIOTensorEnable()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.op; });
}

void Probe::ReportOperationIOTensor(const size_t executeCount, const std::string &opName,
                                    const std::string &opParam,
                                    const std::vector<Probe::Tensor> &inTensors,
                                    const std::vector<Probe::Tensor> &outTensors)
{
    Guard(__func__,
          [&] { SendReport(false, executeCount, opName, opParam, inTensors, outTensors); });
}

bool Probe::ReportKernelIOTensorEnable()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.kernel; });
}

void Probe::ReportKernelIOTensor(const size_t executeCount, const std::string &opName,
                                 const std::string &opParam,
                                 const std::vector<Probe::Tensor> &inTensors,
                                 const std::vector<Probe::Tensor> &outTensors)
{
    Guard(__func__,
          [&] { SendReport(true, executeCount, opName, opParam, inTensors, outTensors); });
}

bool Probe::ReportOperationStatisticEnable()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.statistic; });
}

void Probe::ReportOperationSetupStatistic(const uint64_t executeCount, const std::string &opName,
                                          const std::string &st)
{
    Guard(__func__, [&] { SendStatistic(executeCount, opName, st); });
}

void Probe::ReportOperationExecuteStatistic(const uint64_t executeCount, const std::string &opName,
                                            const std::string &st)
{
    Guard(__func__, [&] { SendStatistic(executeCount, opName, st); });
}

bool Probe::ReportOperationGraphEnable()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.graph; });
}

void Probe::ReportOperationGraph(const std::string &opName, const std::string &graphJson)
{
    Guard(__func__, [&] {
        Session &session = Session::Get();
        if (session.gates.graph) {
            session.Send(Kind::GRAPH, MetaWriter().Text(opName).Text(graphJson));
        }
    });
}

bool Probe::IsOverflowCheck()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.overflowCheck; });
}

bool Probe::IsOverflowStop()
{
    return Gate(__func__, [](const Session::Gates &gates) { return gates.overflowStop; });
}

void Probe::ReportOverflowKernel(const std::string &kernelPath)
{
    Guard(__func__, [&] {
        Session &session = Session::Get();
        if (session.gates.overflowCheck && !kernelPath.empty()) {
            session.Send(Kind::OVERFLOW_, MetaWriter().Text(kernelPath));
        }
    });
}

void Probe::UpdateConfig()
{
    // Settings are read once. The call still counts as a sign of life of the host.
    static_cast<void>(Current());
}

} // namespace atb

namespace atb_speed {

bool SpeedProbe::IsReportModelTopoInfo(const std::string &modelName)
{
    return Guard(__func__, false, [&] {
        Session &session = Session::Get();
        return session.gates.model && session.IsNewModel(modelName);
    });
}

void SpeedProbe::ReportModelTopoInfo(const std::string &modelName, const std::string &graphJson)
{
    Guard(__func__, [&] {
        Session &session = Session::Get();
        if (session.gates.model && session.IsNewModel(modelName)) {
            session.RememberModel(modelName);
            session.Send(Kind::MODEL, MetaWriter().Text(modelName).Text(graphJson));
        }
    });
}

} // namespace atb_speed
