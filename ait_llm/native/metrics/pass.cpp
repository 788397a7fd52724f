#include "pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ait {
namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();
// Squares of floats outside overflow, or lose digits to underflow.
constexpr double LARGEST = 0x1p60;
constexpr double SMALLEST = 0x1p-50;
// Weights exp(g - R) of a block stay in the range of a float.
constexpr double REFERENCE_RANGE = 40;
// exp(-45) of the largest weight is nothing even 2^40 times.
constexpr double NEGLIGIBLE = 45;
constexpr double FLOOR = 0x1p-23;

double Largest(double high, double low)
{
    return std::max(std::abs(high), std::abs(low));
}

bool SquaresFit(double largest)
{
    return largest == 0 || (largest >= SMALLEST && largest <= LARGEST);
}

// exp(d) - 1 - d without cancellation near zero.
double Excess(double d)
{
    if (std::abs(d) > 0.05) {
        return std::expm1(d) - d;
    }
    double series = 1.0 / 362880;
    for (const double term : {1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5}) {
        series = series * d + term;
    }
    return series * d * d;
}

template <typename Integer>
bool SubtractAs(const unsigned char *golden, const unsigned char *mine, size_t count, double *out)
{
    for (size_t i = 0; i < count; ++i) {
        Integer g;
        Integer m;
        memcpy(&g, golden + i * sizeof(g), sizeof(g));
        memcpy(&m, mine + i * sizeof(m), sizeof(m));
        // The distance of two int64 fits into uint64 only.
        out[i] = m >= g ? static_cast<double>(static_cast<uint64_t>(m) - static_cast<uint64_t>(g))
                        : -static_cast<double>(static_cast<uint64_t>(g) - static_cast<uint64_t>(m));
    }
    return true;
}

} // namespace

Pass::Pass(const PairKernels &kernels, const AitPairSettings &settings)
    : kernels_(kernels), settings_(settings), goldenSize_(ElementSize(settings.golden_type)),
      mySize_(ElementSize(settings.my_type)), total_(NoTotals()), chunk_(NoTotals())
{
    settings_.golden_type = Resolved(settings.golden_type, settings.golden_table);
    settings_.my_type = Resolved(settings.my_type, settings.my_table);
    const int type = settings.golden_type;
    const int bits = type == AIT_PAIR_FLOAT16    ? 10
                     : type == AIT_PAIR_BFLOAT16 ? 7
                     : type == AIT_PAIR_FLOAT32  ? 23
                                                 : 0;
    block_ = goldenSize_ == 2 && mySize_ == 2 ? PAIR_BLOCK : SMALL_BLOCK;
    direct_ = type == settings.my_type && bits != 0 &&
              (settings.ulp_bits < 0 || settings.ulp_bits == bits);
}

void Pass::Add(const void *golden, const void *mine, uint64_t count)
{
    const auto *g = static_cast<const unsigned char *>(golden);
    const auto *m = static_cast<const unsigned char *>(mine);
    while (count > 0) {
        if (held_ == 0 && count >= block_) {
            Block(g, m, block_);
            g += block_ * goldenSize_;
            m += block_ * mySize_;
            count -= block_;
            continue;
        }
        const auto taken = static_cast<size_t>(std::min<uint64_t>(count, block_ - held_));
        memcpy(heldGolden_ + held_ * goldenSize_, g, taken * goldenSize_);
        memcpy(heldMine_ + held_ * mySize_, m, taken * mySize_);
        held_ += taken;
        g += taken * goldenSize_;
        m += taken * mySize_;
        count -= taken;
        if (held_ == block_) {
            held_ = 0;
            Block(heldGolden_, heldMine_, block_);
        }
    }
}

void Pass::End(AitPairTotals &totals)
{
    if (held_ > 0) {
        Block(heldGolden_, heldMine_, held_);
        held_ = 0;
    }
    Join(total_, chunk_);
    chunk_ = NoTotals();
    totals = total_;
}

void Pass::Block(const unsigned char *golden, const unsigned char *mine, size_t count)
{
    if (FitsFloat(settings_.golden_type) && FitsFloat(settings_.my_type)) {
        FloatBlock(golden, mine, count);
    } else {
        DoubleBlock(golden, mine, count);
    }
    chunk_.count += count;
    if (chunk_.count == AIT_PAIR_CHUNK) {
        Join(total_, chunk_);
        chunk_ = NoTotals();
        reference_ = myReference_ = 0;
        heaviestGolden_ = heaviestMine_ = -INFINITE;
    }
}

void Pass::FloatBlock(const unsigned char *golden, const unsigned char *mine, size_t count)
{
    if (direct_ && count == block_ && Vector(nullptr, nullptr, nullptr, count, golden, mine)) {
        chunk_.golden.finite += count;
        chunk_.mine.finite += count;
        return;
    }
    DecodeFloats(kernels_, settings_.golden_type, settings_.golden_table, golden, count, golden_);
    DecodeFloats(kernels_, settings_.my_type, settings_.my_table, mine, count, mine_);
    if (!direct_ && count % PAIR_STEP == 0 &&
        Vector(golden_, mine_, nullptr, count, nullptr, nullptr)) {
        chunk_.golden.finite += count;
        chunk_.mine.finite += count;
        return;
    }
    const size_t finite = Sort(golden_, mine_, count, places_);
    for (size_t i = 0; i < finite; ++i) {
        golden_[i] = golden_[places_[i]];
        mine_[i] = mine_[places_[i]];
    }
    const size_t whole = finite - finite % PAIR_STEP;
    size_t done = 0;
    if (whole > 0 && Vector(golden_, mine_, places_, whole, nullptr, nullptr)) {
        done = whole;
    }
    const size_t rest = finite - done;
    for (size_t i = 0; i < rest; ++i) {
        wideGolden_[i] = static_cast<double>(golden_[done + i]);
        wideMine_[i] = static_cast<double>(mine_[done + i]);
        difference_[i] = wideMine_[i] - wideGolden_[i];
    }
    FiniteDoubles(wideGolden_, wideMine_, difference_, places_ + done, rest);
}

// Counts what is not finite and adds up each side where only the other is not. Leaves in `places`
// where both are finite and returns how many that are.
template <typename Number>
size_t Pass::Sort(const Number *golden, const Number *mine, size_t count, uint16_t *places)
{
    size_t finite = 0;
    const auto note = [](AitSideTotals &side, Number value) {
        if (std::isnan(value)) {
            ++side.nan;
        } else if (std::isinf(value)) {
            ++side.inf;
        } else {
            const auto wide = static_cast<double>(value);
            ++side.finite;
            side.high = std::max(side.high, wide);
            side.low = std::min(side.low, wide);
            side.sum += wide;
            side.squares += wide * wide;
        }
    };
    for (size_t i = 0; i < count; ++i) {
        const Number g = golden[i];
        const Number m = mine[i];
        if (std::isfinite(g) && std::isfinite(m)) {
            places[finite++] = static_cast<uint16_t>(i);
            continue;
        }
        note(chunk_.golden, g);
        note(chunk_.mine, m);
        if (!(g == m || (std::isnan(g) && std::isnan(m)))) {
            ++chunk_.unequal;
            ++chunk_.bad;
            if (chunk_.first_bad < 0) {
                chunk_.first_bad = static_cast<int64_t>(chunk_.count + i);
            }
        }
    }
    chunk_.golden.finite += finite;
    chunk_.mine.finite += finite;
    return finite;
}

// Takes a block through the loops: raw elements if `golden` is null, else floats that are all
// finite. Returns false, with nothing added, where the loops are not good enough for it.
bool Pass::Vector(const float *golden, const float *mine, const uint16_t *places, size_t count,
                  const unsigned char *rawGolden, const unsigned char *rawMine)
{
    const bool raw = golden == nullptr;
    const PairLoops &loops =
        raw ? *LoopsOf(kernels_, settings_.golden_type) : kernels_.floats;
    const void *g = raw ? static_cast<const void *>(rawGolden) : golden;
    const void *m = raw ? static_cast<const void *>(rawMine) : mine;
    PairLimits limits = {static_cast<float>(settings_.rtol), static_cast<float>(settings_.atol),
                         reference_, myReference_,
                         static_cast<uint32_t>(std::min<uint64_t>(settings_.ulp_limit, UINT32_MAX))};
    PairSums sums;
    loops.orders(g, m, count, limits, sums);
    const double largestGolden = Largest(sums.highGolden, sums.lowGolden);
    const double largestMine = Largest(sums.highMine, sums.lowMine);
    if (!std::isfinite(largestGolden) || !std::isfinite(largestMine) ||
        !SquaresFit(largestGolden) || !SquaresFit(largestMine)) {
        return false;
    }
    const bool same = sums.unequal == 0;
    bool far = false;
    if (!same) {
        loops.errors(g, m, count, limits, scratch_, sums);
        if (!SquaresFit(sums.maxAbsolute)) {
            return false;
        }
        far = !(sums.maxAbsolute <= static_cast<double>(NEAR_LIMIT)) ||
              sums.squares > 0.25 * std::min(sums.squaresGolden, sums.squaresMine);
    }
    const bool negligible = sums.highGolden < heaviestGolden_ - NEGLIGIBLE &&
                            sums.highMine < heaviestMine_ - NEGLIGIBLE;
    if (!far && !same && negligible) {
        sums.weights = sums.linear = sums.excess = 0;
        sums.reference = chunk_.kl_reference;
    } else {
        if (std::abs(sums.highGolden - static_cast<double>(reference_)) > REFERENCE_RANGE) {
            limits.reference = reference_ = static_cast<float>(sums.highGolden);
        }
        const bool wide = sums.lowGolden < static_cast<double>(reference_ - WEIGHT_RANGE) ||
                          std::abs(reference_) > WEIGHT_REFERENCE;
        if (same) {
            (wide ? loops.sameWide : loops.same)(g, m, count, limits, sums);
        } else if (!far) {
            (wide ? loops.wide : loops.near)(scratch_, m, count, limits, sums);
        } else {
            if (std::abs(sums.highMine - static_cast<double>(myReference_)) > REFERENCE_RANGE) {
                limits.myReference = myReference_ = static_cast<float>(sums.highMine);
            }
            if (myReference_ - reference_ > WEIGHT_RANGE) {
                return false;
            }
            loops.far(scratch_, m, count, limits, sums);
        }
    }
    if (!raw && !same && settings_.ulp_bits >= 0 && settings_.ulp_bits != 23) {
        if (settings_.ulp_bits > 10 || settings_.ulp_last > 0x7fff) {
            return false;
        }
        Encode(golden, count, ulpGolden_);
        Encode(mine, count, ulpMine_);
        kernels_.ulpSixteen(ulpGolden_, ulpMine_, count, limits.ulp, sums);
    }
    if (chunk_.worst < 0 || sums.maxAbsolute > chunk_.max_absolute) {
        if (raw) {
            DecodeFloats(kernels_, settings_.golden_type, nullptr, g, count, golden_);
            DecodeFloats(kernels_, settings_.my_type, nullptr, m, count, mine_);
            golden = golden_;
            mine = mine_;
        }
        const auto wanted = static_cast<float>(sums.maxAbsolute);
        for (size_t i = 0; i < count; ++i) {
            if (std::abs(mine[i] - golden[i]) == wanted) {
                const auto here = static_cast<double>(golden[i]);
                const auto there = static_cast<double>(mine[i]);
                const size_t place = places != nullptr ? places[i] : i;
                NoteWorst(static_cast<int64_t>(chunk_.count + place), here, there,
                          std::abs(there - here));
                break;
            }
        }
    }
    heaviestGolden_ = std::max(heaviestGolden_, sums.highGolden);
    heaviestMine_ = std::max(heaviestMine_, sums.highMine);
    AddSums(sums, count, far);
    return true;
}

// Bits in the type in which ULPs are counted.
void Pass::Encode(const float *values, size_t count, uint16_t *out) const
{
    if (settings_.ulp_bits == 10) {
        kernels_.encodeHalves(values, count, out);
    } else if (settings_.ulp_bits == 7) {
        kernels_.encodeBrains(values, count, out);
    } else {
        const PairSmall type = {settings_.ulp_bits, settings_.ulp_exponent,
                                static_cast<int32_t>(settings_.ulp_last)};
        kernels_.encodeSmall(values, count, type, out);
    }
}

void Pass::NoteWorst(int64_t place, double golden, double mine, double error)
{
    if (chunk_.worst < 0 || error > chunk_.max_absolute) {
        chunk_.worst = place;
        chunk_.worst_golden = golden;
        chunk_.worst_mine = mine;
        chunk_.max_absolute = error;
    }
}

void Pass::AddSums(const PairSums &sums, size_t count, bool far)
{
    const auto side = [](AitSideTotals &into, double high, double low, double sum, double squares) {
        into.high = std::max(into.high, high);
        into.low = std::min(into.low, low);
        into.sum += sum;
        into.squares += squares;
    };
    side(chunk_.golden, sums.highGolden, sums.lowGolden, sums.sumGolden, sums.squaresGolden);
    side(chunk_.mine, sums.highMine, sums.lowMine, sums.sumMine, sums.squaresMine);
    AitPairTotals block = NoTotals();
    block.finite = count;
    block.unequal = sums.unequal;
    block.sum_absolute = sums.sumAbsolute;
    block.squares = sums.squares;
    block.max_relative = sums.maxRelative;
    block.sum_relative = sums.sumRelative;
    // |m - g|^2 = |g|^2 + |m|^2 - 2 g.m; of near sides nothing cancels.
    block.dot = far ? sums.dot : (sums.squaresGolden + sums.squaresMine - sums.squares) / 2;
    block.golden_squares = sums.squaresGolden;
    block.my_squares = sums.squaresMine;
    block.max_ulp = static_cast<double>(sums.maxUlp);
    block.beyond_ulp = sums.beyondUlp;
    block.passed = sums.passed;
    block.kl_reference = sums.reference;
    // Near sides have the same weights but for exp(d): those of mine refer to R as well.
    block.kl_my_reference = far ? sums.myReference : sums.reference;
    block.kl_weights = sums.weights;
    block.kl_linear = sums.linear;
    block.kl_excess = sums.excess;
    block.kl_my_weights = far ? sums.myWeights : sums.weights + sums.linear + sums.excess;
    Join(chunk_, block);
}

void Pass::DoubleBlock(const unsigned char *golden, const unsigned char *mine, size_t count)
{
    DecodeDoubles(kernels_, settings_.golden_type, settings_.golden_table, golden, count,
                  wideGolden_);
    DecodeDoubles(kernels_, settings_.my_type, settings_.my_table, mine, count, wideMine_);
    const int type = settings_.golden_type;
    bool exact = false;
    if (type == settings_.my_type && type == AIT_PAIR_INT64) {
        exact = SubtractAs<int64_t>(golden, mine, count, difference_);
    } else if (type == settings_.my_type && type == AIT_PAIR_UINT64) {
        exact = SubtractAs<uint64_t>(golden, mine, count, difference_);
    }
    const size_t finite = Sort(wideGolden_, wideMine_, count, places_);
    for (size_t i = 0; i < finite; ++i) {
        wideGolden_[i] = wideGolden_[places_[i]];
        wideMine_[i] = wideMine_[places_[i]];
        difference_[i] = exact ? difference_[places_[i]] : wideMine_[i] - wideGolden_[i];
    }
    FiniteDoubles(wideGolden_, wideMine_, difference_, places_, finite);
}

void Pass::FiniteDoubles(const double *golden, const double *mine, const double *difference,
                         const uint16_t *places, size_t count)
{
    if (count == 0) {
        return;
    }
    AitPairTotals block = NoTotals();
    block.finite = count;
    double sumGolden = 0;
    double sumMine = 0;
    for (size_t i = 0; i < count; ++i) {
        const double g = golden[i];
        const double m = mine[i];
        const double d = difference[i];
        const double error = std::abs(d);
        const double relative = error / std::max(std::abs(g), FLOOR);
        NoteWorst(static_cast<int64_t>(chunk_.count + places[i]), g, m, error);
        block.golden.high = std::max(block.golden.high, g);
        block.golden.low = std::min(block.golden.low, g);
        block.mine.high = std::max(block.mine.high, m);
        block.mine.low = std::min(block.mine.low, m);
        sumGolden += g;
        sumMine += m;
        block.golden_squares += g * g;
        block.my_squares += m * m;
        block.dot += g * m;
        block.squares += d * d;
        block.sum_absolute += error;
        block.sum_relative += relative;
        block.max_relative = std::max(block.max_relative, relative);
        block.unequal += d != 0;
        block.passed += error <= settings_.atol + settings_.rtol * std::abs(g);
    }
    block.golden.sum = sumGolden;
    block.golden.squares = block.golden_squares;
    block.mine.sum = sumMine;
    block.mine.squares = block.my_squares;
    if (settings_.ulp_bits >= 0) {
        for (size_t i = 0; i < count; ++i) {
            const int64_t g = Ordinal(golden[i]);
            const int64_t m = Ordinal(mine[i]);
            const uint64_t distance = g > m ? static_cast<uint64_t>(g) - static_cast<uint64_t>(m)
                                            : static_cast<uint64_t>(m) - static_cast<uint64_t>(g);
            block.max_ulp = std::max(block.max_ulp, static_cast<double>(distance));
            block.beyond_ulp += distance > settings_.ulp_limit;
        }
    }
    block.kl_reference = block.golden.high;
    block.kl_my_reference = block.mine.high;
    const bool overflows = block.mine.high - block.golden.high > 600;
    // exp(m - R) is w * exp(d): a second one is not needed while that keeps its digits.
    double largest = 0;
    for (size_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::abs(difference[i]));
    }
    if (largest <= 1) {
        for (size_t i = 0; i < count; ++i) {
            const double exponent = golden[i] - block.kl_reference;
            if (exponent > -750) {
                const double weight = std::exp(exponent);
                block.kl_weights += weight;
                if (difference[i] != 0) {
                    block.kl_linear += weight * difference[i];
                    block.kl_excess += weight * Excess(difference[i]);
                }
            }
        }
        block.kl_my_reference = block.kl_reference;
        block.kl_my_weights = block.kl_weights + block.kl_linear + block.kl_excess;
        Join(chunk_, block);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        const double exponent = golden[i] - block.kl_reference;
        const double mineExponent = mine[i] - block.kl_my_reference;
        if (mineExponent > -750) {
            block.kl_my_weights += std::exp(mineExponent);
        }
        if (exponent > -750) {
            const double weight = std::exp(exponent);
            block.kl_weights += weight;
            block.kl_linear += weight * difference[i];
            if (difference[i] <= 1) {
                block.kl_excess += weight * Excess(difference[i]);
            } else if (!overflows) {
                block.kl_excess += std::exp(mine[i] - block.kl_reference) - weight -
                                   weight * difference[i];
            }
        } else if (!overflows && mine[i] - block.kl_reference > -750) {
            block.kl_excess += std::exp(mine[i] - block.kl_reference);
        }
    }
    if (overflows) {
        block.kl_excess = INFINITE;
    }
    Join(chunk_, block);
}

// The place of a number in the order of all numbers of the ULP type, after rounding to it.
int64_t Pass::Ordinal(double value) const
{
    const double size = std::abs(value);
    int64_t place;
    if (settings_.ulp_bits == 52) {
        memcpy(&place, &size, sizeof(place));
    } else if (settings_.ulp_bits == 23) {
        const auto rounded = static_cast<float>(size);
        int32_t bits;
        memcpy(&bits, &rounded, sizeof(bits));
        place = bits;
    } else if (size == 0) {
        place = 0;
    } else {
        const int exponent = std::max(std::ilogb(size), settings_.ulp_exponent);
        const double steps = std::nearbyint(std::ldexp(size, settings_.ulp_bits - exponent));
        const auto above = static_cast<int64_t>(exponent - settings_.ulp_exponent);
        place = (above << settings_.ulp_bits) + static_cast<int64_t>(steps);
        place = std::min(place, settings_.ulp_last);
    }
    return value < 0 ? -place : place;
}

} // namespace ait
