// Times and counts of Setup and Execute, and their texts in ATB's spelling.
#ifndef AIT_HOSTATB_STATISTIC_H
#define AIT_HOSTATB_STATISTIC_H

#include <chrono>
#include <cstdint>
#include <string>

namespace hostatb {

struct SetupStatistic { // times in microseconds
    uint64_t totalTime = 0;
    uint64_t runnerCreateTime = 0;
    uint64_t runnerSetupTime = 0;
    uint64_t runnerFillHostTilingTime = 0;
    uint64_t setupTotalCount = 0;
    uint64_t setupCacheHitCount = 0;
    uint64_t setupCacheMissCount = 0;
    uint64_t tilingCacheHitCount = 0;
    uint64_t tilingCacheMissCount = 0;
    uint64_t tilingLocalCacheHitCount = 0;
    uint64_t tilingGlobalCacheHitCount = 0;

    std::string Text() const;
};

struct ExecuteStatistic {
    uint64_t totalTime = 0;
    uint64_t kernelExecuteTime = 0;

    std::string Text() const;
};

class Stopwatch {
public:
    uint64_t Microseconds() const
    {
        const auto passed = std::chrono::steady_clock::now() - start_;
        return static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace hostatb

#endif
