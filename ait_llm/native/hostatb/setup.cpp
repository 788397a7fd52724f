#include "setup.h"

#include <string>

#include "atb_probe.h"
#include "dump.h"
#include "failure.h"
#include "settings.h"
#include "tiling_cache.h"

namespace hostatb {
namespace {

void CheckPlan(const Runner &runner)
{
    const size_t tensors = runner.in.size() + runner.out.size() + runner.plan.workspace.size();
    for (const Kernel &kernel : runner.plan.kernels) {
        for (const std::vector<uint32_t> *ids : {&kernel.in, &kernel.out}) {
            for (const uint32_t id : *ids) {
                if (id >= tensors) {
                    throw Failure(HOSTATB_ERROR_INVALID_PARAM,
                                  "kernel " + kernel.name + " of " + runner.Name() +
                                      " refers to tensor " + std::to_string(id) + " of " +
                                      std::to_string(tensors));
                }
            }
        }
    }
}

void PlanLeaf(Runner &runner)
{
    const HostatbCallbacks &callbacks = runner.operation->leaf->callbacks;
    runner.plan = HostatbPlan{};
    if (callbacks.plan != nullptr && !runner.operation->leaf->plugin) {
        const int status = callbacks.plan(
            callbacks.user, &runner.plan, runner.operation->inNum, runner.in.data(),
            runner.operation->outNum, runner.out.data());
        if (status != HOSTATB_NO_ERROR) {
            throw Failure(status, "no kernels could be chosen for " + runner.Name());
        }
    }
    CheckPlan(runner);
}

// Kernels are asked for once; they keep the answer when the shapes change.
void AskForKernels(Runner &runner)
{
    while (runner.kernelNeedSave.size() < runner.plan.kernels.size()) {
        std::vector<int64_t> ids = runner.ids;
        ids.push_back(static_cast<int64_t>(runner.kernelNeedSave.size()));
        runner.kernelNeedSave.push_back(
            atb::Probe::IsTensorNeedSave(ids, runner.operation->type));
    }
}

void LookUpTilings(Runner &runner, SetupStatistic &statistic)
{
    std::vector<std::string> keys;
    runner.tilingCached.clear();
    for (size_t k = 0; k < runner.plan.kernels.size(); ++k) {
        const Kernel &kernel = runner.plan.kernels[k];
        keys.push_back(TilingKey(runner, kernel));
        const bool local = k < runner.tilingKeys.size() && runner.tilingKeys[k] == keys[k];
        const bool cached = local || IsTilingCached(runner.operation->type, k, keys[k]);
        runner.tilingCached.push_back(cached);
        ++(cached ? statistic.tilingCacheHitCount : statistic.tilingCacheMissCount);
        statistic.tilingLocalCacheHitCount += local ? 1 : 0;
        statistic.tilingGlobalCacheHitCount += cached && !local ? 1 : 0;
        if (cached && kernel.tilingSize != 0 && GetSettings().AsksForCachedTiling()) {
            atb::Probe::IsSaveTiling(); // decides only whether ATB copies the tiling to the host
        }
    }
    runner.tilingKeys = std::move(keys);
}

void SetupLeaf(Runner &runner, const Descs &in, SetupStatistic &statistic)
{
    ++statistic.setupTotalCount;
    if (runner.described && SameDescs(runner.in, in)) {
        ++statistic.setupCacheHitCount;
    } else {
        ++statistic.setupCacheMissCount;
        runner.described = false;
        runner.in = in;
        runner.out = InferShape(*runner.operation, in);
        PlanLeaf(runner);
        runner.described = true;
    }
    AskForKernels(runner);
    LookUpTilings(runner, statistic);
}

void SetupGraph(Runner &runner, const Descs &in, SetupStatistic &statistic)
{
    const std::vector<Node> &nodes = runner.operation->graph->nodes;
    runner.in = in;
    runner.tensors = GraphTensors(*runner.operation, in);
    for (size_t i = 0; i < nodes.size(); ++i) {
        Runner &child = *runner.children[i];
        SetupRunner(child, NodeInputs(nodes[i], runner.tensors), statistic);
        SetNodeOutputs(*runner.operation, nodes[i], child.out, runner.tensors);
    }
    runner.out = GraphOutputs(*runner.operation, runner.tensors);
}

} // namespace

void SetupRunner(Runner &runner, const Descs &in, SetupStatistic &statistic)
{
    if (in.size() != runner.operation->inNum) {
        throw Failure(HOSTATB_ERROR_INVALID_IN_TENSOR_NUM,
                      runner.Name() + " takes " + std::to_string(runner.operation->inNum) +
                          " input tensors, not " + std::to_string(in.size()));
    }
    if (runner.operation->IsGraph()) {
        SetupGraph(runner, in, statistic);
    } else {
        SetupLeaf(runner, in, statistic);
    }
    if (GetSettings().HasUpdateConfig()) {
        atb::Probe::UpdateConfig();
    }
}

void FillTilings(Runner &runner)
{
    for (const auto &child : runner.children) {
        FillTilings(*child);
    }
    for (size_t k = 0; k < runner.plan.kernels.size(); ++k) {
        if (runner.plan.kernels[k].tilingSize != 0) {
            DumpTiling(runner, k);
        }
        if (!runner.tilingCached[k]) {
            StoreTiling(runner.operation->type, k, runner.tilingKeys[k]);
        }
    }
}

} // namespace hostatb
