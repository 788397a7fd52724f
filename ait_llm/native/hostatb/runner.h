// The tree of runners behind a top-level operation: one per operation and nested graph.
#ifndef AIT_HOSTATB_RUNNER_H
#define AIT_HOSTATB_RUNNER_H

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "operation.h"
#include "tensor.h"

namespace hostatb {

struct Kernel {
    std::string name;
    std::string mkiOp;
    std::string mkiParam;
    uint64_t tilingSize = 0;
    std::vector<uint32_t> in; // operation inputs, then outputs, then workspace
    std::vector<uint32_t> out;
};

} // namespace hostatb

struct HostatbPlan {
    std::vector<hostatb::Kernel> kernels;
    std::vector<HostatbDesc> workspace;
};

namespace hostatb {

struct Runner {
    HostatbOperation *operation = nullptr;
    std::vector<int64_t> ids;
    std::string directory; // of its files; the runner's class name until ATB sets it
    bool needSave = false; // the Probe's answer, cached
    uint64_t executeCount = 0;

    Descs in;
    Descs out;
    bool described = false; // `in`, `out` and the plan belong to a successful Setup

    // Storage of each tensor, an index into the memory plan: inputs, outputs, then internals of a
    // graph or workspace of a leaf.
    std::vector<size_t> storage;

    // Graphs.
    std::vector<std::unique_ptr<Runner>> children;
    Descs tensors; // inputs, outputs, internals

    // Leaves.
    HostatbPlan plan;
    std::vector<bool> kernelNeedSave;
    std::vector<std::string> tilingKeys; // of the last Setup: the local tiling cache
    std::vector<bool> tilingCached;      // of this Setup

    std::string Name() const; // LinearOperation_0_1_0
    std::string KernelDirectory(size_t kernel) const;
    HostatbDesc TensorDesc(size_t tensor) const; // of inputs, outputs, workspace
};

// "LinearOperation_0_1_0".
std::string OperationName(const std::string &type, const std::vector<int64_t> &ids);

// Creates the tree depth first. Every runner but the root asks the Probe whether to save it, a
// nested graph after its nodes.
std::unique_ptr<Runner> CreateRunners(HostatbOperation &operation, std::vector<int64_t> ids);

// Gives the whole tree its directories.
void SetDirectories(Runner &runner, const std::string &directory);

} // namespace hostatb

#endif
