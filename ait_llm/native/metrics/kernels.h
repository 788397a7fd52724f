// The inner loops, compiled once for any processor and, on x86-64, for AVX2 and AVX-512 as well.
#ifndef AIT_METRICS_KERNELS_H
#define AIT_METRICS_KERNELS_H

#include <cstddef>
#include <cstdint>

namespace ait {

// Elements that are looked at together, at most: of 16 bits so many, of others SMALL_BLOCK. Both sides
// and what is kept of them stay in the first-level cache, and sums in float stay short: with AVX-512 a
// lane adds up 128 terms at most, two at a time.
constexpr size_t PAIR_BLOCK = 2048;
constexpr size_t SMALL_BLOCK = 1024;
// The loops below take multiples of this.
constexpr size_t PAIR_STEP = 64;

struct PairLimits {
    float rtol;
    float atol;
    float reference;   // R of the weights exp(g - R)
    float myReference; // S of exp(m - S), only for the far loop
    uint32_t ulp;
};

// Floats of a block for the later loops.
struct alignas(64) PairScratch {
    float golden[PAIR_BLOCK];
    float difference[PAIR_BLOCK];
};

// Sums over a block.
struct PairSums {
    double highGolden, lowGolden, sumGolden, squaresGolden;
    double highMine, lowMine, sumMine, squaresMine;
    double maxAbsolute, sumAbsolute, squares;
    double maxRelative, sumRelative;
    double dot; // only the far loop; otherwise it is left to the caller
    double weights, linear, excess;
    double myWeights; // sum of exp(m - S), only the far loop
    double reference, myReference; // R and S as rounding left them
    uint32_t maxUlp;
    uint32_t beyondUlp;
    uint32_t unequal;
    uint32_t passed;
};

using PairLoop = void (*)(const void *golden, const void *mine, size_t count,
                          const PairLimits &limits, PairSums &sums);
using PairErrors = void (*)(const void *golden, const void *mine, size_t count,
                            const PairLimits &limits, PairScratch &scratch, PairSums &sums);
using PairWeights = void (*)(const PairScratch &scratch, const void *mine, size_t count,
                             const PairLimits &limits, PairSums &sums);

// For one element type; ULPs are counted in that type. Each looks at a block that the one before
// left in the first-level cache.
struct PairLoops {
    // First: extremes, ULPs and unequal places. Where an element is not finite, an extreme is not
    // either, and the other loops cannot take the block.
    PairLoop orders;
    // All the rest where no place is unequal. No g may be more than WEIGHT_RANGE below R, nor R
    // beyond WEIGHT_REFERENCE, but for sameWide.
    PairLoop same;
    PairLoop sameWide;
    // Errors and sums of the sides.
    PairErrors errors;
    // Then weights, where abs(m - g) <= NEAR_LIMIT everywhere; limits as for `same`.
    PairWeights near;
    PairWeights wide;
    // For any differences; no m above S + 80, S at most 80 above R.
    PairWeights far;
    // Largest abs(m - g) / (abs(g) + rms) of places that are finite on both sides.
    float (*elementError)(const void *golden, const void *mine, size_t count, float rms);
};

// A floating type: bits after the leading one, smallest normal exponent, ordinal of what is too large.
struct PairSmall {
    int32_t bits;
    int32_t exponent;
    int32_t last;
};

// Sums of any number of blocks; see ait_metrics.h.
struct RatioSums {
    double dot, goldenSquares, mySquares, squares;
    double maxAbsolute, maxRelative;
    uint64_t thousandth, fiveThousandths;
};

struct PairKernels {
    PairLoops halves, brains, floats;
    void (*decodeHalves)(const uint16_t *values, size_t count, float *out);
    void (*decodeSigned)(const int8_t *values, size_t count, float *out);
    void (*decodeUnsigned)(const uint8_t *values, size_t count, float *out);
    void (*decodeBrains)(const uint16_t *values, size_t count, float *out);
    // To nearest even, as bits of sign and magnitude; what is too large becomes infinite.
    void (*encodeHalves)(const float *values, size_t count, uint16_t *out);
    void (*encodeBrains)(const float *values, size_t count, uint16_t *out);
    // For any type of fewer bits: where its numbers lie in their order, with a sign.
    void (*encodeSmall)(const float *values, size_t count, const PairSmall &type, uint16_t *out);
    // `count` is a multiple of PAIR_STEP.
    void (*ulpSixteen)(const uint16_t *golden, const uint16_t *mine, size_t count, uint32_t limit,
                       PairSums &sums);
    // `count` is a multiple of PAIR_STEP; `ratios` wants all to be finite.
    bool (*allFinite)(const float *values, size_t count);
    void (*ratios)(const float *golden, const float *mine, size_t count, RatioSums &sums);
};

// Up to here exp(d) - 1 - d is d * d * (1 / 2 + d / 6) but for 8e-5 of itself.
constexpr float NEAR_LIMIT = 1.0f / 32;
constexpr float WEIGHT_RANGE = 80;
constexpr float WEIGHT_REFERENCE = 0x1p14f;

const PairKernels &PortablePairKernels();
// Only for processors with AVX2, FMA and F16C, or AVX-512 F, BW, DQ and VL; x86-64 only.
const PairKernels &Avx2PairKernels();
const PairKernels &Avx512PairKernels();

} // namespace ait

#endif
