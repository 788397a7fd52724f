// Blocks of any float types for the ratio kernel, what is not finite taken out.
#include "pass.h"

#include <algorithm>
#include <cmath>

namespace {

using ait::SMALL_BLOCK;

// Where a side is not finite both become 0; where the sides do not say the same it is counted.
uint64_t TakeOut(float *golden, float *mine, size_t count)
{
    uint64_t misplaced = 0;
    for (size_t i = 0; i < count; ++i) {
        if (std::isfinite(golden[i]) && std::isfinite(mine[i])) {
            continue;
        }
        const bool both = std::isnan(golden[i]) && std::isnan(mine[i]);
        misplaced += !both && golden[i] != mine[i];
        golden[i] = mine[i] = 0;
    }
    return misplaced;
}

} // namespace

extern "C" int ait_pair_ratios(const AitPairSettings *settings, const void *golden, const void *mine,
                               uint64_t count, AitPairRatios *ratios)
{
    const ait::PairKernels *kernels = ait::KernelsOf(settings->variant);
    if (kernels == nullptr) {
        return 2;
    }
    if (!ait::FitsFloat(settings->golden_type) || !ait::FitsFloat(settings->my_type)) {
        return 1;
    }
    const size_t sizes[] = {ait::ElementSize(settings->golden_type),
                            ait::ElementSize(settings->my_type)};
    alignas(64) float g[SMALL_BLOCK];
    alignas(64) float m[SMALL_BLOCK];
    ait::RatioSums sums = {};
    for (uint64_t done = 0; done < count; done += SMALL_BLOCK) {
        const auto here = static_cast<size_t>(std::min<uint64_t>(count - done, SMALL_BLOCK));
        ait::DecodeFloats(*kernels, settings->golden_type, settings->golden_table,
                          static_cast<const unsigned char *>(golden) + done * sizes[0], here, g);
        ait::DecodeFloats(*kernels, settings->my_type, settings->my_table,
                          static_cast<const unsigned char *>(mine) + done * sizes[1], here, m);
        const size_t whole = here + (ait::PAIR_STEP - here % ait::PAIR_STEP) % ait::PAIR_STEP;
        std::fill(g + here, g + whole, 0.0f);
        std::fill(m + here, m + whole, 0.0f);
        if (!kernels->allFinite(g, whole) || !kernels->allFinite(m, whole)) {
            ratios->misplaced += TakeOut(g, m, here);
        }
        kernels->ratios(g, m, whole, sums);
        sums.thousandth -= whole - here; // padding agrees
        sums.fiveThousandths -= whole - here;
    }
    ratios->count += count;
    ratios->dot += sums.dot;
    ratios->golden_squares += sums.goldenSquares;
    ratios->my_squares += sums.mySquares;
    ratios->squares += sums.squares;
    ratios->max_absolute = std::max(ratios->max_absolute, sums.maxAbsolute);
    ratios->max_relative = std::max(ratios->max_relative, sums.maxRelative);
    ratios->thousandth += sums.thousandth;
    ratios->five_thousandths += sums.fiveThousandths;
    return 0;
}
