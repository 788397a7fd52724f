// Totals of stretches that follow each other, added up.
#include "pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ait {
namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

void JoinSide(AitSideTotals &into, const AitSideTotals &following)
{
    into.high = std::max(into.high, following.high);
    into.low = std::min(into.low, following.low);
    into.sum += following.sum;
    into.squares += following.squares;
    into.finite += following.finite;
    into.nan += following.nan;
    into.inf += following.inf;
}

// exp(from - to), without work where both are the same, as they mostly are.
double Scale(double from, double to)
{
    return from == to ? 1.0 : std::exp(from - to);
}

// Brings both sums of weights to the larger reference.
void JoinWeights(AitPairTotals &into, const AitPairTotals &following)
{
    if (following.finite == 0) {
        return;
    }
    if (into.finite == 0) {
        into.kl_reference = following.kl_reference;
        into.kl_weights = following.kl_weights;
        into.kl_linear = following.kl_linear;
        into.kl_excess = following.kl_excess;
        into.kl_my_reference = following.kl_my_reference;
        into.kl_my_weights = following.kl_my_weights;
        return;
    }
    const double reference = std::max(into.kl_reference, following.kl_reference);
    const double ours = Scale(into.kl_reference, reference);
    const double theirs = Scale(following.kl_reference, reference);
    into.kl_weights = ours * into.kl_weights + theirs * following.kl_weights;
    into.kl_linear = ours * into.kl_linear + theirs * following.kl_linear;
    if (std::isinf(into.kl_excess) || std::isinf(following.kl_excess)) {
        into.kl_excess = INFINITE;
    } else {
        into.kl_excess = ours * into.kl_excess + theirs * following.kl_excess;
    }
    into.kl_reference = reference;
    const double mine = std::max(into.kl_my_reference, following.kl_my_reference);
    into.kl_my_weights = into.kl_my_weights * Scale(into.kl_my_reference, mine) +
                         following.kl_my_weights * Scale(following.kl_my_reference, mine);
    into.kl_my_reference = mine;
}

} // namespace

AitPairTotals NoTotals()
{
    AitPairTotals totals = {};
    totals.golden.high = totals.mine.high = -INFINITE;
    totals.golden.low = totals.mine.low = INFINITE;
    totals.first_bad = totals.worst = -1;
    return totals;
}

void Join(AitPairTotals &into, const AitPairTotals &following)
{
    const auto before = static_cast<int64_t>(into.count);
    JoinSide(into.golden, following.golden);
    JoinSide(into.mine, following.mine);
    if (into.first_bad < 0 && following.first_bad >= 0) {
        into.first_bad = before + following.first_bad;
    }
    if (following.worst >= 0 && (into.worst < 0 || following.max_absolute > into.max_absolute)) {
        into.worst = before + following.worst;
        into.worst_golden = following.worst_golden;
        into.worst_mine = following.worst_mine;
        into.max_absolute = following.max_absolute;
    }
    into.max_relative = std::max(into.max_relative, following.max_relative);
    into.max_ulp = std::max(into.max_ulp, following.max_ulp);
    JoinWeights(into, following);
    into.count += following.count;
    into.finite += following.finite;
    into.unequal += following.unequal;
    into.bad += following.bad;
    into.sum_absolute += following.sum_absolute;
    into.squares += following.squares;
    into.sum_relative += following.sum_relative;
    into.dot += following.dot;
    into.golden_squares += following.golden_squares;
    into.my_squares += following.my_squares;
    into.beyond_ulp += following.beyond_ulp;
    into.passed += following.passed;
}

} // namespace ait
