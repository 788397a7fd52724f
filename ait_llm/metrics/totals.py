"""Sums and extremes from which every metric follows, as one pass over a pair leaves them.

The layout is that of ``AitPairTotals`` in ``native/metrics/ait_metrics.h``.
"""

from __future__ import annotations

import ctypes
import math

_DOUBLE = ctypes.c_double
_COUNT = ctypes.c_uint64
_PLACE = ctypes.c_int64


class SideTotals(ctypes.Structure):
    """One side: its finite elements, and how many are not.

    Attributes:
        high, low: largest and smallest finite element, -inf and +inf if there is none.
        sum, squares: of the finite elements, the latter of their squares.
        finite, nan, inf: how many elements are what.
    """

    _fields_ = (
        ("high", _DOUBLE),
        ("low", _DOUBLE),
        ("sum", _DOUBLE),
        ("squares", _DOUBLE),
        ("finite", _COUNT),
        ("nan", _COUNT),
        ("inf", _COUNT),
    )
    high: float
    low: float
    sum: float
    squares: float
    finite: int
    nan: int
    inf: int


class Totals(ctypes.Structure):
    """A pair. "Places" are elements at the same index of both sides, d is mine minus golden.

    Attributes:
        golden, mine: each side for itself.
        count: places.
        finite: places where both sides are finite; all sums below run over these.
        unequal: places whose values differ; NaN equals NaN, an infinity the same infinity.
        bad: unequal places where a side is not finite.
        first_bad: the first of them, -1 without one.
        worst: first place of the largest ``abs(d)``, -1 if no place is finite.
        worst_golden, worst_mine: the values there.
        max_absolute, sum_absolute, squares: largest and sum of ``abs(d)``, sum of ``d * d``.
        max_relative, sum_relative: of ``abs(d) / max(abs(g), 2**-23)``.
        dot, golden_squares, my_squares: sums of ``g * m``, ``g * g`` and ``m * m``.
        max_ulp: largest distance in representable numbers.
        beyond_ulp: places further apart than the limit.
        passed: places with ``abs(d) <= atol + rtol * abs(g)``.
        kl_reference: R; kl_weights, kl_linear and kl_excess are the sums of w, ``w * d`` and
            ``w * (exp(d) - 1 - d)`` with ``w = exp(g - R)``. The excess is infinite where it would
            overflow.
        kl_my_reference, kl_my_weights: S and the sum of ``exp(m - S)``.
    """

    _fields_ = (
        ("golden", SideTotals),
        ("mine", SideTotals),
        ("count", _COUNT),
        ("finite", _COUNT),
        ("unequal", _COUNT),
        ("bad", _COUNT),
        ("first_bad", _PLACE),
        ("worst", _PLACE),
        ("worst_golden", _DOUBLE),
        ("worst_mine", _DOUBLE),
        ("max_absolute", _DOUBLE),
        ("sum_absolute", _DOUBLE),
        ("squares", _DOUBLE),
        ("max_relative", _DOUBLE),
        ("sum_relative", _DOUBLE),
        ("dot", _DOUBLE),
        ("golden_squares", _DOUBLE),
        ("my_squares", _DOUBLE),
        ("max_ulp", _DOUBLE),
        ("beyond_ulp", _COUNT),
        ("passed", _COUNT),
        ("kl_reference", _DOUBLE),
        ("kl_weights", _DOUBLE),
        ("kl_linear", _DOUBLE),
        ("kl_excess", _DOUBLE),
        ("kl_my_reference", _DOUBLE),
        ("kl_my_weights", _DOUBLE),
    )
    golden: SideTotals
    mine: SideTotals
    count: int
    finite: int
    unequal: int
    bad: int
    first_bad: int
    worst: int
    worst_golden: float
    worst_mine: float
    max_absolute: float
    sum_absolute: float
    squares: float
    max_relative: float
    sum_relative: float
    dot: float
    golden_squares: float
    my_squares: float
    max_ulp: float
    beyond_ulp: int
    passed: int
    kl_reference: float
    kl_weights: float
    kl_linear: float
    kl_excess: float
    kl_my_reference: float
    kl_my_weights: float


_SUMS = (
    "count",
    "finite",
    "unequal",
    "bad",
    "sum_absolute",
    "squares",
    "sum_relative",
    "dot",
    "golden_squares",
    "my_squares",
    "beyond_ulp",
    "passed",
)


def empty_totals() -> Totals:
    """Totals of no element."""
    totals = Totals(first_bad=-1, worst=-1)
    for side in (totals.golden, totals.mine):
        side.high, side.low = -math.inf, math.inf
    return totals


def merge(into: Totals, following: Totals) -> None:
    """Add the totals of the elements that follow directly."""
    before = into.count
    for ours, theirs in ((into.golden, following.golden), (into.mine, following.mine)):
        ours.high = max(ours.high, theirs.high)
        ours.low = min(ours.low, theirs.low)
        for name in ("sum", "squares", "finite", "nan", "inf"):
            setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
    if into.first_bad < 0 <= following.first_bad:
        into.first_bad = before + following.first_bad
    if following.worst >= 0 and (into.worst < 0 or following.max_absolute > into.max_absolute):
        into.worst = before + following.worst
        into.max_absolute = following.max_absolute
        into.worst_golden, into.worst_mine = following.worst_golden, following.worst_mine
    into.max_relative = max(into.max_relative, following.max_relative)
    into.max_ulp = max(into.max_ulp, following.max_ulp)
    _merge_weights(into, following)
    for name in _SUMS:
        setattr(into, name, getattr(into, name) + getattr(following, name))


def _merge_weights(into: Totals, following: Totals) -> None:
    if not following.finite:
        return
    if not into.finite:
        for name in ("reference", "weights", "linear", "excess", "my_reference", "my_weights"):
            setattr(into, f"kl_{name}", getattr(following, f"kl_{name}"))
        return
    reference = max(into.kl_reference, following.kl_reference)
    ours = math.exp(into.kl_reference - reference)
    theirs = math.exp(following.kl_reference - reference)
    into.kl_weights = ours * into.kl_weights + theirs * following.kl_weights
    into.kl_linear = ours * into.kl_linear + theirs * following.kl_linear
    excesses = (into.kl_excess, following.kl_excess)
    into.kl_excess = math.inf if math.inf in excesses else ours * excesses[0] + theirs * excesses[1]
    into.kl_reference = reference
    reference = max(into.kl_my_reference, following.kl_my_reference)
    into.kl_my_weights = into.kl_my_weights * math.exp(
        into.kl_my_reference - reference
    ) + following.kl_my_weights * math.exp(following.kl_my_reference - reference)
    into.kl_my_reference = reference
