#include "pass.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace {

using ait::PAIR_BLOCK;

double FloatErrors(const ait::PairKernels &kernels, const AitPairSettings &settings,
                   const unsigned char *golden, const unsigned char *mine, uint64_t count,
                   double rms)
{
    const int types[] = {ait::Resolved(settings.golden_type, settings.golden_table),
                         ait::Resolved(settings.my_type, settings.my_table)};
    const size_t sizes[] = {ait::ElementSize(types[0]), ait::ElementSize(types[1])};
    const ait::PairLoops *loops =
        types[0] == types[1] ? ait::LoopsOf(kernels, types[0]) : nullptr;
    const auto limit = static_cast<float>(rms);
    float largest = 0;
    uint64_t done = 0;
    if (loops != nullptr) {
        done = count - count % ait::PAIR_STEP;
        largest = loops->elementError(golden, mine, static_cast<size_t>(done), limit);
    }
    alignas(64) float g[PAIR_BLOCK];
    alignas(64) float m[PAIR_BLOCK];
    for (; done < count; done += PAIR_BLOCK) {
        const auto here = static_cast<size_t>(std::min<uint64_t>(count - done, PAIR_BLOCK));
        ait::DecodeFloats(kernels, types[0], settings.golden_table, golden + done * sizes[0], here, g);
        ait::DecodeFloats(kernels, types[1], settings.my_table, mine + done * sizes[1], here, m);
        const size_t whole = here + (ait::PAIR_STEP - here % ait::PAIR_STEP) % ait::PAIR_STEP;
        std::fill(g + here, g + whole, 0.0f);
        std::fill(m + here, m + whole, 0.0f);
        largest = std::max(largest, kernels.floats.elementError(g, m, whole, limit));
    }
    return static_cast<double>(largest);
}

double DoubleErrors(const ait::PairKernels &kernels, const AitPairSettings &settings,
                    const unsigned char *golden, const unsigned char *mine, uint64_t count,
                    double rms)
{
    double g[PAIR_BLOCK];
    double m[PAIR_BLOCK];
    double largest = 0;
    for (uint64_t i = 0; i < count; i += PAIR_BLOCK) {
        const auto here = static_cast<size_t>(std::min<uint64_t>(count - i, PAIR_BLOCK));
        ait::DecodeDoubles(kernels, settings.golden_type, settings.golden_table,
                           golden + i * ait::ElementSize(settings.golden_type), here, g);
        ait::DecodeDoubles(kernels, settings.my_type, settings.my_table,
                           mine + i * ait::ElementSize(settings.my_type), here, m);
        for (size_t k = 0; k < here; ++k) {
            // Halved, because the difference of two large numbers may overflow.
            const double ratio =
                std::abs(m[k] / 2 - g[k] / 2) / (std::abs(g[k]) / 2 + rms / 2);
            if (std::isfinite(g[k]) && std::isfinite(m[k])) {
                largest = std::max(largest, ratio);
            }
        }
    }
    return largest;
}

} // namespace

extern "C" {

uint64_t ait_pair_state_size(void)
{
    return sizeof(ait::Pass);
}

int ait_pair_begin(void *state, const AitPairSettings *settings)
{
    const ait::PairKernels *kernels = ait::KernelsOf(settings->variant);
    if (kernels == nullptr) {
        return 2;
    }
    // What is resolved from a table is no type of a caller.
    const auto unknown = [](int type) {
        return type > AIT_PAIR_BYTE || ait::ElementSize(type) == 0;
    };
    if (unknown(settings->golden_type) || unknown(settings->my_type)) {
        return 1;
    }
    new (state) ait::Pass(*kernels, *settings);
    return 0;
}

void ait_pair_add(void *state, const void *golden, const void *mine, uint64_t count)
{
    static_cast<ait::Pass *>(state)->Add(golden, mine, count);
}

void ait_pair_end(void *state, AitPairTotals *totals)
{
    static_cast<ait::Pass *>(state)->End(*totals);
}

void ait_pair_join(AitPairTotals *into, const AitPairTotals *following)
{
    ait::Join(*into, *following);
}

double ait_pair_element_error(const AitPairSettings *settings, const void *golden,
                              const void *mine, uint64_t count, double rms)
{
    const ait::PairKernels *kernels = ait::KernelsOf(settings->variant);
    if (kernels == nullptr) {
        kernels = ait::KernelsOf(AIT_PAIR_BEST);
    }
    const bool floats = ait::FitsFloat(settings->golden_type) && ait::FitsFloat(settings->my_type);
    // In float the ratio is meaningful while sums of sizes do not overflow or vanish.
    const bool fits = rms > 0x1p-100 && rms < 0x1p100;
    return (floats && fits ? FloatErrors : DoubleErrors)(
        *kernels, *settings, static_cast<const unsigned char *>(golden),
        static_cast<const unsigned char *>(mine), count, rms);
}

} // extern "C"
