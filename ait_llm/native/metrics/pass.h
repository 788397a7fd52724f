// One pass over a pair, in blocks that stay in the first-level cache.
#ifndef AIT_METRICS_PASS_H
#define AIT_METRICS_PASS_H

#include "ait_metrics.h"
#include "kernels.h"

#include <limits>

namespace ait {

// Index of the best variant where `variant` is AIT_PAIR_BEST; nullptr where it cannot run.
const PairKernels *KernelsOf(int variant);

size_t ElementSize(int type); // 0 for an unknown type

// Bytes whose table says that they are integers need no table.
constexpr int SIGNED_BYTE = 11;
constexpr int UNSIGNED_BYTE = 12;
int Resolved(int type, const float *table);

// Numbers of types that a float holds exactly.
bool FitsFloat(int type);
void DecodeFloats(const PairKernels &kernels, int type, const float *table, const void *data,
                  size_t count, float *out);
void DecodeDoubles(const PairKernels &kernels, int type, const float *table, const void *data,
                   size_t count, double *out);

// The loops for a type, nullptr if there are none.
const PairLoops *LoopsOf(const PairKernels &kernels, int type);

AitPairTotals NoTotals();
void Join(AitPairTotals &into, const AitPairTotals &following);

class Pass {
public:
    Pass(const PairKernels &kernels, const AitPairSettings &settings);
    void Add(const void *golden, const void *mine, uint64_t count);
    void End(AitPairTotals &totals);

private:
    void Block(const unsigned char *golden, const unsigned char *mine, size_t count);
    void FloatBlock(const unsigned char *golden, const unsigned char *mine, size_t count);
    bool Vector(const float *golden, const float *mine, const uint16_t *places, size_t count,
                const unsigned char *rawGolden, const unsigned char *rawMine);
    void DoubleBlock(const unsigned char *golden, const unsigned char *mine, size_t count);
    void FiniteDoubles(const double *golden, const double *mine, const double *difference,
                       const uint16_t *places, size_t count);
    void AddSums(const PairSums &sums, size_t count, bool far);
    void NoteWorst(int64_t place, double golden, double mine, double error);
    template <typename Number>
    size_t Sort(const Number *golden, const Number *mine, size_t count, uint16_t *places);
    int64_t Ordinal(double value) const;
    void Encode(const float *values, size_t count, uint16_t *out) const;

    const PairKernels &kernels_;
    AitPairSettings settings_;
    size_t goldenSize_;
    size_t mySize_;
    size_t block_; // elements of a block
    bool direct_; // both sides of one type that the loops read, ULPs counted in that type
    AitPairTotals total_;
    AitPairTotals chunk_;
    // Of this chunk: references of the weights, and the largest numbers that have a weight.
    float reference_ = 0;
    float myReference_ = 0;
    double heaviestGolden_ = -std::numeric_limits<double>::infinity();
    double heaviestMine_ = -std::numeric_limits<double>::infinity();
    PairScratch scratch_;
    size_t held_ = 0; // elements that wait for a whole block
    alignas(64) unsigned char heldGolden_[PAIR_BLOCK * 8];
    alignas(64) unsigned char heldMine_[PAIR_BLOCK * 8];
    alignas(64) float golden_[PAIR_BLOCK];
    alignas(64) float mine_[PAIR_BLOCK];
    uint16_t places_[PAIR_BLOCK];
    double wideGolden_[PAIR_BLOCK];
    double wideMine_[PAIR_BLOCK];
    double difference_[PAIR_BLOCK];
    uint16_t ulpGolden_[PAIR_BLOCK];
    uint16_t ulpMine_[PAIR_BLOCK];
};

} // namespace ait

#endif
