#include "dump.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "atb_probe.h"
#include "settings.h"

namespace hostatb {
namespace {

using atb::Probe;

const char *const kPhaseNames[] = {"/before/", "/after/"};

bool IsSavePhase(Phase phase)
{
    return phase == Phase::kBefore ? Probe::IsSaveTensorBefore() : Probe::IsSaveTensorAfter();
}

bool IsInDirectory(const std::string &directory)
{
    return !GetSettings().HasSpecificDir() || Probe::IsSaveTensorInSpecificDir(directory);
}

// Operations ask for the range before they look at the cached answer, kernels after.
bool IsOperationSelected(const Runner &runner)
{
    return Probe::IsExecuteCountInRange(runner.executeCount) && runner.needSave &&
           IsInDirectory(runner.directory);
}

std::string FileName(const char *stem, size_t index, const std::vector<std::string> *names)
{
    std::string name = stem + std::to_string(index);
    if (names != nullptr && index < names->size() && !(*names)[index].empty()) {
        name += "_" + (*names)[index];
    }
    return name + ".bin";
}

void SaveTensor(const HostatbTensor &tensor, const std::string &path)
{
    struct Free {
        void operator()(void *memory) const { std::free(memory); }
    };
    if (tensor.size != 0 && tensor.data == nullptr) {
        return; // ATB's copy from a null address fails, and nothing is saved
    }
    std::unique_ptr<void, Free> host; // like ATB's copy from the device: gone after the call
    if (tensor.size != 0) {
        host.reset(std::malloc(tensor.size));
        if (!host) {
            throw std::bad_alloc();
        }
        std::memcpy(host.get(), tensor.data, tensor.size);
    }
    try {
        Probe::SaveTensor(std::to_string(tensor.desc.format), std::to_string(tensor.desc.dtype),
                          DimsText(tensor.desc), host.get(), tensor.size, path);
    } catch (const std::exception &) {
        return; // ATB logs it and goes on with the next tensor
    }
}

void SaveTensors(const std::string &directory, const Tensors &in, const Tensors &out,
                 const Leaf *leaf)
{
    Probe::IsSaveTensorData(); // decides only about a stream synchronisation
    for (size_t i = 0; i < in.size(); ++i) {
        SaveTensor(in[i], directory + FileName("intensor", i, leaf ? &leaf->inNames : nullptr));
    }
    for (size_t i = 0; i < out.size(); ++i) {
        SaveTensor(out[i], directory + FileName("outtensor", i, leaf ? &leaf->outNames : nullptr));
    }
}

// Paths of the report tables lack the kernel directory and the IR names, and use one phase for
// inputs and outputs: so does ATB.
std::vector<Probe::Tensor> Rows(const Tensors &tensors, const std::string &directory,
                                const char *stem)
{
    std::vector<Probe::Tensor> rows;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const HostatbDesc &desc = tensors[i].desc;
        rows.push_back({DtypeName(desc.dtype), FormatName(desc.format), DimsText(desc),
                        directory + FileName(stem, i, nullptr)});
    }
    return rows;
}

std::string ReportDirectory(const Runner &runner)
{
    return runner.directory + kPhaseNames[Probe::IsSaveTensorBefore() ? 0 : 1];
}

// A CPU kernel has no tiles; its host data are the dimensions that it works on.
std::vector<uint8_t> TilingData(const Runner &runner, const Kernel &kernel)
{
    std::vector<int64_t> numbers;
    for (const std::vector<uint32_t> *tensors : {&kernel.in, &kernel.out}) {
        for (const uint32_t tensor : *tensors) {
            const HostatbDesc desc = runner.TensorDesc(tensor);
            numbers.insert(numbers.end(), desc.dims, desc.dims + desc.ndim);
        }
    }
    std::vector<uint8_t> data(kernel.tilingSize);
    std::memcpy(data.data(), numbers.data(),
                std::min(data.size(), numbers.size() * sizeof numbers[0]));
    return data;
}

} // namespace

void DumpOperation(const Runner &runner, Phase phase, const Tensors &in, const Tensors &out)
{
    if (!IsOperationSelected(runner) || !IsSavePhase(phase)) {
        return;
    }
    const bool named = !runner.operation->IsGraph() && GetSettings().HasIrNames();
    SaveTensors(runner.directory + kPhaseNames[static_cast<int>(phase)], in, out,
                named ? &*runner.operation->leaf : nullptr);
}

void DumpParam(const Runner &runner)
{
    if (!IsOperationSelected(runner) || !Probe::IsSaveParam()) {
        return;
    }
    if (!runner.operation->IsGraph() && runner.operation->leaf->paramJson) {
        Probe::SaveParam(*runner.operation->leaf->paramJson, runner.directory + "/op_param.json");
    }
}

void DumpKernel(const Runner &runner, size_t kernel, Phase phase, const Tensors &in,
                const Tensors &out)
{
    if (!runner.kernelNeedSave[kernel] || !Probe::IsExecuteCountInRange(runner.executeCount) ||
        !IsSavePhase(phase)) {
        return;
    }
    const std::string directory = runner.KernelDirectory(kernel);
    if (IsInDirectory(directory)) {
        SaveTensors(directory + kPhaseNames[static_cast<int>(phase)], in, out, nullptr);
    }
}

void DumpTiling(const Runner &runner, size_t kernel)
{
    if (!runner.kernelNeedSave[kernel] || !Probe::IsExecuteCountInRange(runner.executeCount) ||
        !Probe::IsSaveTiling()) {
        return;
    }
    const std::string directory = runner.KernelDirectory(kernel);
    if (IsInDirectory(directory)) {
        const std::vector<uint8_t> data = TilingData(runner, runner.plan.kernels[kernel]);
        Probe::SaveTiling(data.data(), data.size(), directory + "/kernel_tilingdata.bin");
    }
}

void ReportOperation(const Runner &runner, const Tensors &in, const Tensors &out)
{
    if (!Probe::ReportOperationIOTensorEnable() || runner.operation->IsGraph()) {
        return;
    }
    const std::string directory = ReportDirectory(runner);
    Probe::ReportOperationIOTensor(runner.executeCount, runner.Name(),
                                   runner.operation->leaf->paramJson.value_or("{}"),
                                   Rows(in, directory, "intensor"),
                                   Rows(out, directory, "outtensor"));
}

void ReportKernel(const Runner &runner, size_t kernel, const Tensors &in, const Tensors &out)
{
    if (!Probe::ReportKernelIOTensorEnable()) {
        return;
    }
    const std::string directory = ReportDirectory(runner);
    Probe::ReportKernelIOTensor(runner.executeCount, runner.plan.kernels[kernel].mkiOp,
                                runner.plan.kernels[kernel].mkiParam,
                                Rows(in, directory, "intensor"),
                                Rows(out, directory, "outtensor"));
}

} // namespace hostatb
