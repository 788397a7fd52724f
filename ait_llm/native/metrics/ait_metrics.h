// One pass over a pair of tensors, as a plain C interface. Meanings: ait_llm/metrics/totals.py.
#ifndef AIT_METRICS_H
#define AIT_METRICS_H

#include <stdint.h>

#define AIT_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum AitPairElement {
    AIT_PAIR_FLOAT32 = 0,
    AIT_PAIR_FLOAT64 = 1,
    AIT_PAIR_FLOAT16 = 2,
    AIT_PAIR_BFLOAT16 = 3,
    AIT_PAIR_INT16 = 4,
    AIT_PAIR_UINT16 = 5,
    AIT_PAIR_INT32 = 6,
    AIT_PAIR_UINT32 = 7,
    AIT_PAIR_INT64 = 8,
    AIT_PAIR_UINT64 = 9,
    AIT_PAIR_BYTE = 10 // any type of one byte; a table says which number each byte stands for
};

enum AitPairVariant {
    AIT_PAIR_BEST = 0,
    AIT_PAIR_PORTABLE = 1,
    AIT_PAIR_AVX2 = 2,
    AIT_PAIR_AVX512 = 3
};

typedef struct AitPairSettings {
    int32_t golden_type;
    int32_t my_type;
    const float *golden_table; // [256] for AIT_PAIR_BYTE, else unused
    const float *my_table;
    // The type in which ULPs are counted: bits of its significand after the leading one (-1: do not
    // count), its smallest normal exponent, and the ordinal of what is beyond its largest number.
    int32_t ulp_bits;
    int32_t ulp_exponent;
    int64_t ulp_last;
    uint64_t ulp_limit;
    double rtol;
    double atol;
    int32_t variant;
    int32_t unused;
} AitPairSettings;

typedef struct AitSideTotals {
    double high;
    double low;
    double sum;
    double squares;
    uint64_t finite;
    uint64_t nan;
    uint64_t inf;
} AitSideTotals;

typedef struct AitPairTotals {
    AitSideTotals golden;
    AitSideTotals mine;
    uint64_t count;
    uint64_t finite;
    uint64_t unequal;
    uint64_t bad;
    int64_t first_bad;
    int64_t worst;
    double worst_golden;
    double worst_mine;
    double max_absolute;
    double sum_absolute;
    double squares;
    double max_relative;
    double sum_relative;
    double dot;
    double golden_squares;
    double my_squares;
    double max_ulp;
    uint64_t beyond_ulp;
    uint64_t passed;
    double kl_reference;
    double kl_weights;
    double kl_linear;
    double kl_excess;
    double kl_my_reference;
    double kl_my_weights;
} AitPairTotals;

// Elements after which partial totals are added up. Totals of a tensor are the same in whatever
// pieces it is handed over, and as totals of its stretches of this length, joined in order.
#define AIT_PAIR_CHUNK (1u << 20)

// A pass in progress lies in memory of the caller, this large and aligned to 64 bytes.
AIT_EXPORT uint64_t ait_pair_state_size(void);
// Returns 0, or 1 for an unknown type, 2 for a variant that this processor or build lacks.
AIT_EXPORT int ait_pair_begin(void *state, const AitPairSettings *settings);
// Elements need no alignment.
AIT_EXPORT void ait_pair_add(void *state, const void *golden, const void *mine, uint64_t count);
AIT_EXPORT void ait_pair_end(void *state, AitPairTotals *totals);
// Adds the totals of the elements that follow directly.
AIT_EXPORT void ait_pair_join(AitPairTotals *into, const AitPairTotals *following);

// Largest abs(m - g) / (abs(g) + rms) of the places that are finite on both sides.
AIT_EXPORT double ait_pair_element_error(const AitPairSettings *settings, const void *golden,
                                         const void *mine, uint64_t count, double rms);

// Totals of float types of 32 bits at most, for metrics that compare in float: places where both sides
// are NaN or the same infinity count as 0, other places that are not finite as misplaced. A relative
// error is abs((m - g) / g) in float, 2^-23 added to both where g is 0; two limits are 0.001 and 0.005.
typedef struct AitPairRatios {
    uint64_t count;
    uint64_t misplaced;
    double dot;
    double golden_squares;
    double my_squares;
    double squares;
    double max_absolute;
    double max_relative;
    uint64_t thousandth;
    uint64_t five_thousandths;
} AitPairRatios;

// Adds the totals of some elements, which need no alignment. Returns 0, or what ait_pair_begin does.
AIT_EXPORT int ait_pair_ratios(const AitPairSettings *settings, const void *golden, const void *mine,
                               uint64_t count, AitPairRatios *ratios);

#ifdef __cplusplus
}
#endif

#endif
