#include "execute.h"

#include <algorithm>

#include "atb_probe.h"
#include "dump.h"
#include "failure.h"
#include "overflow.h"
#include "settings.h"

namespace hostatb {
namespace {

using atb::Probe;

Tensors Resolve(const Runner &runner, const MemoryPlan &memory, const std::vector<uint32_t> &ids)
{
    Tensors tensors;
    for (const uint32_t id : ids) {
        tensors.push_back(memory.Resolve(runner.storage[id], runner.TensorDesc(id)));
    }
    return tensors;
}

std::vector<uint32_t> Range(size_t first, size_t count)
{
    std::vector<uint32_t> ids(count);
    for (size_t i = 0; i < count; ++i) {
        ids[i] = static_cast<uint32_t>(first + i);
    }
    return ids;
}

Tensors Inputs(const Runner &runner, const MemoryPlan &memory)
{
    return Resolve(runner, memory, Range(0, runner.in.size()));
}

Tensors Outputs(const Runner &runner, const MemoryPlan &memory)
{
    return Resolve(runner, memory, Range(runner.in.size(), runner.out.size()));
}

// In saturation mode a device stores the largest finite value and remembers the overflow.
void Saturate(HostatbContext &context, const Tensors &out)
{
    bool overflowed = TakeFloatStatus();
    if (GetSettings().saturate) {
        for (const HostatbTensor &tensor : out) {
            overflowed = ClampInfinities(tensor) || overflowed;
        }
    }
    if (overflowed) {
        context.floatStatus = true;
    }
}

int RunLeaf(Runner &runner, uint32_t kernel, const Tensors &in, const Tensors &out,
            Execution &execution)
{
    const HostatbCallbacks &callbacks = runner.operation->leaf->callbacks;
    if (callbacks.run == nullptr || execution.capture) {
        return HOSTATB_NO_ERROR;
    }
    const Stopwatch watch;
    TakeFloatStatus();
    const int status =
        callbacks.run(callbacks.user, kernel, static_cast<uint32_t>(in.size()), in.data(),
                      static_cast<uint32_t>(out.size()), out.data());
    Saturate(execution.context, out);
    execution.statistic.kernelExecuteTime += watch.Microseconds();
    if (status != HOSTATB_NO_ERROR) {
        const bool hasKernels = kernel < runner.plan.kernels.size();
        SetLastError((hasKernels ? "kernel " + runner.plan.kernels[kernel].name + " of " : "") +
                     runner.Name() + " failed");
    }
    return status;
}

// ATB looks at the outputs of the operation, not of the kernel; in saturation mode at the status
// of the device, which it never clears.
int CheckOverflow(const Runner &runner, size_t kernel, const Tensors &operationOut,
                  const HostatbContext &context)
{
    if (!Probe::IsOverflowCheck()) {
        return HOSTATB_NO_ERROR;
    }
    const bool overflowed =
        GetSettings().saturate ? context.floatStatus.load()
                               : std::any_of(operationOut.begin(), operationOut.end(), HasInfinity);
    if (!overflowed) {
        return HOSTATB_NO_ERROR;
    }
    const std::string path = runner.Name() + ":" + runner.plan.kernels[kernel].name;
    Probe::ReportOverflowKernel(path);
    if (!Probe::IsOverflowStop()) {
        return HOSTATB_NO_ERROR;
    }
    SetLastError("overflow in " + path);
    return GetSettings().release == Release::k80 ? HOSTATB_ERROR_INTERNAL_ERROR
                                                 : HOSTATB_ERROR_RT_FAIL;
}

int RunKernel(Runner &runner, size_t kernel, const Tensors &operationOut, Execution &execution)
{
    const Tensors in = Resolve(runner, execution.memory, runner.plan.kernels[kernel].in);
    const Tensors out = Resolve(runner, execution.memory, runner.plan.kernels[kernel].out);
    DumpKernel(runner, kernel, Phase::kBefore, in, out);
    int status = RunLeaf(runner, static_cast<uint32_t>(kernel), in, out, execution);
    if (status == HOSTATB_NO_ERROR) {
        status = CheckOverflow(runner, kernel, operationOut, execution.context);
    }
    if (status != HOSTATB_NO_ERROR) {
        return status;
    }
    ReportKernel(runner, kernel, in, out);
    DumpKernel(runner, kernel, Phase::kAfter, in, out);
    return HOSTATB_NO_ERROR;
}

int RunBody(Runner &runner, const Tensors &in, const Tensors &out, Execution &execution)
{
    int status = HOSTATB_NO_ERROR;
    if (runner.operation->IsGraph()) {
        for (size_t i = 0; i < runner.children.size() && status == HOSTATB_NO_ERROR; ++i) {
            status = ExecuteRunner(*runner.children[i], execution);
        }
        return status;
    }
    if (runner.plan.kernels.empty()) {
        return RunLeaf(runner, 0, in, out, execution);
    }
    for (size_t k = 0; k < runner.plan.kernels.size() && status == HOSTATB_NO_ERROR; ++k) {
        status = RunKernel(runner, k, out, execution);
    }
    return status;
}

} // namespace

int ExecuteRunner(Runner &runner, Execution &execution)
{
    const Tensors in = Inputs(runner, execution.memory);
    const Tensors out = Outputs(runner, execution.memory);
    DumpOperation(runner, Phase::kBefore, in, out);
    const int status = RunBody(runner, in, out, execution);
    DumpOperation(runner, Phase::kAfter, in, out); // also when the body failed
    DumpParam(runner);
    ReportOperation(runner, in, out);
    ++runner.executeCount;
    return status;
}

int ReplayKernels(Runner &runner, Execution &execution)
{
    int status = HOSTATB_NO_ERROR;
    for (size_t i = 0; i < runner.children.size() && status == HOSTATB_NO_ERROR; ++i) {
        status = ReplayKernels(*runner.children[i], execution);
    }
    if (runner.operation->IsGraph()) {
        return status;
    }
    if (runner.plan.kernels.empty()) {
        return RunLeaf(runner, 0, Inputs(runner, execution.memory),
                       Outputs(runner, execution.memory), execution);
    }
    for (size_t k = 0; k < runner.plan.kernels.size() && status == HOSTATB_NO_ERROR; ++k) {
        const Kernel &kernel = runner.plan.kernels[k];
        status = RunLeaf(runner, static_cast<uint32_t>(k),
                         Resolve(runner, execution.memory, kernel.in),
                         Resolve(runner, execution.memory, kernel.out), execution);
    }
    return status;
}

void CountExecute(Runner &runner)
{
    for (const auto &child : runner.children) {
        CountExecute(*child);
    }
    ++runner.executeCount;
}

} // namespace hostatb
