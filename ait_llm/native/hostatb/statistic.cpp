#include "statistic.h"

#include <utility>
#include <vector>

namespace hostatb {
namespace {

std::string Joined(const std::vector<std::pair<const char *, uint64_t>> &values)
{
    std::string text;
    for (const auto &[name, value] : values) {
        text += (text.empty() ? "" : ", ") + std::string(name) + ":" + std::to_string(value);
    }
    return text;
}

} // namespace

std::string SetupStatistic::Text() const
{
    return Joined({
        {"totalTime", totalTime},
        {"runnerCreateTime", runnerCreateTime},
        {"runnerSetupTime", runnerSetupTime},
        {"runnerFillHostTilingTime", runnerFillHostTilingTime},
        {"setupTotalCount", setupTotalCount},
        {"setupCacheHitCount", setupCacheHitCount},
        {"setupCacheMissCount", setupCacheMissCount},
        {"opsInitLuanchBufferTime", 0}, // upstream's spelling; host memory needs no launch buffer
        {"tilingCacheHitCount", tilingCacheHitCount},
        {"tilingCacheMissCount", tilingCacheMissCount},
        {"tilingLocalCacheHitCount", tilingLocalCacheHitCount},
        {"tilingGlobalCacheHitCount", tilingGlobalCacheHitCount},
        {"kernelCacheGetTilingTime", 0}, // the cache holds no tiling data here
        {"kernelCacheAddTilingTime", 0},
        {"kernelCacheCompareRunInfoTime", 0},
        {"kernelCacheGetRunInfoTime", 0},
    });
}

std::string ExecuteStatistic::Text() const
{
    return Joined({
        {"totalTime", totalTime},
        {"streamSyncTime", 0}, // kernels run in the calling thread
        {"tillingCopyTime", 0}, // upstream's spelling
        {"kernelExecuteTime", kernelExecuteTime},
    });
}

} // namespace hostatb
