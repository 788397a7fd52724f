#include "top_level.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <new>
#include <string>

#include "atb_probe.h"
#include "failure.h"
#include "graph_json.h"
#include "settings.h"
#include "setup.h"

namespace hostatb {
namespace {

using atb::Probe;

std::atomic<int64_t> nextId{0};

Descs DescsOf(const Tensors &tensors)
{
    Descs descs;
    for (const HostatbTensor &tensor : tensors) {
        descs.push_back(tensor.desc);
    }
    return descs;
}

void CheckTensor(const HostatbTensor &tensor, const std::string &name)
{
    if (tensor.size < ByteCount(tensor.desc)) {
        throw Failure(HOSTATB_ERROR_INVALID_TENSOR_SIZE,
                      name + " is " + DescText(tensor.desc) + " but has only " +
                          std::to_string(tensor.size) + " bytes");
    }
}

// The status that ATB gives an output of another description.
int MismatchStatus(const HostatbDesc &got, const HostatbDesc &wanted)
{
    if (got.dtype != wanted.dtype || got.format != wanted.format) {
        return HOSTATB_ERROR_INVALID_TENSOR_INI_MATCH;
    }
    return got.ndim != wanted.ndim ? HOSTATB_ERROR_INVALID_TENSOR_DIM_NUM
                                   : HOSTATB_ERROR_INVALID_TENSOR_DIM;
}

// What ATB makes of an exception that the Probe, or memory, throws into it.
int ExceptionStatus(bool setup)
{
    if (GetSettings().release == Release::k80) {
        return HOSTATB_ERROR_INTERNAL_ERROR;
    }
    return setup ? HOSTATB_ERROR_OUT_OF_HOST_MEMORY : HOSTATB_ERROR_RT_FAIL;
}

template <typename Body> int StatusOf(bool setup, Body body)
{
    try {
        return body();
    } catch (const Failure &failure) {
        SetLastError(failure.what());
        return failure.status();
    } catch (const std::exception &exception) {
        SetLastError(exception.what());
    } catch (...) {
        SetLastError("an exception of unknown type");
    }
    return ExceptionStatus(setup);
}

} // namespace

TopLevel::TopLevel(HostatbOperation &operation) : operation_(operation), id_(nextId++) {}

void TopLevel::CheckTensors(const Tensors &in, const Tensors &out) const
{
    if (in.size() != operation_.inNum || out.size() != operation_.outNum) {
        throw Failure(HOSTATB_ERROR_INVALID_IN_TENSOR_NUM,
                      operation_.type + " takes " + std::to_string(operation_.inNum) +
                          " input and " + std::to_string(operation_.outNum) +
                          " output tensors, not " + std::to_string(in.size()) + " and " +
                          std::to_string(out.size()));
    }
    for (size_t i = 0; i < in.size(); ++i) {
        CheckTensor(in[i], "input " + std::to_string(i) + " of " + operation_.type);
    }
    for (size_t i = 0; i < out.size(); ++i) {
        CheckTensor(out[i], "output " + std::to_string(i) + " of " + operation_.type);
    }
}

void TopLevel::CheckAccepted(const Tensors &in, const Tensors &out) const
{
    if (!operation_.leaf || operation_.leaf->callbacks.accept == nullptr) {
        return;
    }
    const HostatbCallbacks &callbacks = operation_.leaf->callbacks;
    const Descs inDescs = DescsOf(in);
    const Descs outDescs = DescsOf(out);
    const int status = callbacks.accept(callbacks.user, operation_.inNum, inDescs.data(),
                                        operation_.outNum, outDescs.data());
    if (status != HOSTATB_NO_ERROR) {
        throw Failure(status, operation_.type + " does not take these tensors");
    }
}

void TopLevel::CheckOutputs(const Tensors &out) const
{
    for (size_t i = 0; i < out.size(); ++i) {
        if (!SameDesc(out[i].desc, root_->out[i])) {
            throw Failure(MismatchStatus(out[i].desc, root_->out[i]),
                          "output " + std::to_string(i) + " of " + operation_.type + " is " +
                              DescText(out[i].desc) + "; the operation produces " +
                              DescText(root_->out[i]));
        }
    }
}

void TopLevel::CreateRunnersOnce()
{
    if (!root_) {
        root_ = CreateRunners(operation_, {id_});
    }
    if (!graphReported_) {
        graphReported_ = true;
        if (Probe::ReportOperationGraphEnable()) {
            Probe::ReportOperationGraph(root_->Name(), GraphJson(*root_));
        }
    }
}

bool TopLevel::IsReplay(const HostatbContext &context, const Tensors &in, const Tensors &out) const
{
    return context.graphLaunch && captured_ && SameDescs(DescsOf(in), root_->in) &&
           SameDescs(DescsOf(out), root_->out);
}

void TopLevel::TrySetup(const HostatbContext &context, const Tensors &in, const Tensors &out,
                        SetupStatistic &statistic)
{
    const bool replay = IsReplay(context, in, out);
    ready_ = false;
    CheckTensors(in, out);
    CheckAccepted(in, out);
    if (replay) { // everything is in the captured graph
        ready_ = true;
        ++setupCount_;
        return;
    }
    captured_ = false;
    const Stopwatch create;
    CreateRunnersOnce();
    statistic.runnerCreateTime = create.Microseconds();
    root_->needSave = Probe::IsTensorNeedSave(root_->ids, operation_.type);
    if (Probe::IsSaveTensorDesc()) {
        SetDirectories(*root_, std::to_string(context.device) + "_" + std::to_string(::getpid()) +
                                   "/" + std::to_string(setupCount_) + "/" + std::to_string(id_) +
                                   "_" + operation_.type);
    }
    const Stopwatch setup;
    SetupRunner(*root_, DescsOf(in), statistic);
    CheckOutputs(out);
    memory_.Build(*root_);
    memory_.Allocate();
    statistic.runnerSetupTime = setup.Microseconds();
    const Stopwatch fill;
    FillTilings(*root_);
    statistic.runnerFillHostTilingTime = fill.Microseconds();
    ready_ = true;
    ++setupCount_;
}

int TopLevel::Setup(HostatbContext &context, const Tensors &in, const Tensors &out)
{
    const Stopwatch total;
    SetupStatistic statistic;
    const int status = StatusOf(true, [&] {
        SetCurrentDevice(context.device);
        TrySetup(context, in, out, statistic);
        return HOSTATB_NO_ERROR;
    });
    statistic.totalTime = total.Microseconds();
    const int reported = StatusOf(true, [&] {
        if (Probe::ReportOperationStatisticEnable()) {
            // ATB 8.2 and later reset the object before they report it.
            const SetupStatistic seen =
                GetSettings().MeasuresSetup() ? statistic : SetupStatistic{};
            Probe::ReportOperationSetupStatistic(
                setupCount_, OperationName(operation_.type, {id_}), seen.Text());
        }
        return HOSTATB_NO_ERROR;
    });
    return status != HOSTATB_NO_ERROR ? status : reported;
}

// With graph launch, kernels run when the walk has captured all of them: what it saves are tensors
// before their computation.
int TopLevel::Walk(Execution &execution)
{
    execution.capture = execution.context.graphLaunch;
    int status = ExecuteRunner(*root_, execution);
    if (execution.capture && status == HOSTATB_NO_ERROR) {
        captured_ = true;
        execution.capture = false;
        status = ReplayKernels(*root_, execution);
    }
    return status;
}

int TopLevel::Replay(Execution &execution)
{
    FillTilings(*root_);
    const int status = ReplayKernels(*root_, execution);
    CountExecute(*root_);
    return status;
}

int TopLevel::Execute(HostatbContext &context, const Tensors &in, const Tensors &out)
{
    return StatusOf(false, [&] {
        if (!ready_) {
            throw Failure(HOSTATB_ERROR_INVALID_PARAM,
                          operation_.type + " has no successful Setup to execute");
        }
        CheckTensors(in, out);
        if (!SameDescs(DescsOf(in), root_->in) || !SameDescs(DescsOf(out), root_->out)) {
            throw Failure(HOSTATB_ERROR_INVALID_PARAM,
                          operation_.type + " was set up for tensors of other shapes or dtypes");
        }
        SetCurrentDevice(context.device);
        memory_.BindCaller(in, out);
        const Stopwatch total;
        ExecuteStatistic statistic;
        Execution execution{context, memory_, statistic};
        const int status =
            context.graphLaunch && captured_ ? Replay(execution) : Walk(execution);
        if (status == HOSTATB_NO_ERROR && GetSettings().ReportsExecuteStatistic() &&
            Probe::ReportOperationStatisticEnable()) {
            statistic.totalTime = total.Microseconds();
            Probe::ReportOperationExecuteStatistic(setupCount_, root_->Name(), statistic.Text());
        }
        return status;
    });
}

} // namespace hostatb
