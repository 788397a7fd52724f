"""Comparing recorded statistics, for captures that kept no values.

Errors of maximum, minimum, mean and L2 norm are reported as absolute and relative ones under the
names of the tool's statistics report. The verdict does not rest on them: a minimum or a mean may be
close to zero in a sound tensor, and its relative error then says nothing. Instead each difference
is set in proportion to the size of golden's elements (:func:`scaled_error`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ait_llm.core.comparison import SideSummary, Verdict
from ait_llm.formats import Statistics

SCALED_ERROR = "stat_scaled_error"
NAMES = ("max", "min", "mean", "l2norm")
STATISTIC_METRICS = tuple(
    f"{name}_stat_{kind}_error" for name in NAMES for kind in ("absolute", "relative")
)
_SUMMED = ("mean", "l2norm")
_ROUNDING = 2.0**-44  # of sums in float64, over whole numbers too


@dataclass(frozen=True, slots=True)
class StatisticsResult:
    """What two sets of statistics say about a pair; the fields are those of ``Comparison``."""

    verdict: Verdict
    reason: str
    values: Mapping[str, float]
    missing: Mapping[str, str]
    tolerance: Mapping[str, float]
    needed: Mapping[str, float]


def compare_statistics(
    golden: Statistics, mine: Statistics, elements: int, limit: float
) -> StatisticsResult:
    """Errors of the statistics and a verdict on them.

    Args:
        golden, mine: statistics of the finite elements.
        elements: number of elements of golden.
        limit: largest :func:`scaled_error` that passes.
    """
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name in NAMES:
        g, m = getattr(golden, name), getattr(mine, name)
        absolute, relative = f"{name}_stat_absolute_error", f"{name}_stat_relative_error"
        if g is None or m is None:
            reason = f"{'golden' if g is None else 'mine'} has no {name}"
            missing[absolute] = missing[relative] = reason
            continue
        values[absolute] = _apart(golden=g, mine=m)
        if g == m or (math.isnan(g) and math.isnan(m)):
            values[relative] = 0.0
        elif g:
            values[relative] = abs((m - g) / g)
        else:
            missing[relative] = f"golden's {name} is zero"
    worst = scaled_error(golden, mine, elements)
    if worst is None:
        missing[SCALED_ERROR] = "no statistic is known of both sides"
    else:
        values[SCALED_ERROR] = worst[0]
    counts = _different_counts(golden, mine)
    if worst is None and not counts:
        nothing = golden.nan is not None and mine.nan is not None and _has_no_finite(golden, mine)
        verdict = Verdict.PASS if nothing else Verdict.SKIPPED
        reason = "" if nothing else "the captures have no statistic in common"
        return StatisticsResult(verdict, reason, values, missing, {}, {})
    error = worst[0] if worst is not None else math.nan
    if worst is not None and worst[1] in _SUMMED:
        limit = max(limit, _ROUNDING)
    reasons = [*counts]
    if worst is not None and not error <= limit:
        reasons.insert(0, f"the {worst[1]} differs by {error:.3g} of its scale, limit {limit:.3g}")
    return StatisticsResult(
        Verdict.FAIL if reasons else Verdict.PASS,
        "; ".join(reasons),
        values,
        missing,
        {SCALED_ERROR: limit},
        # whatever came in, it does not explain another count of NaN or infinities
        {SCALED_ERROR: math.inf if counts else error} if worst is not None else {},
    )


def scaled_error(golden: Statistics, mine: Statistics, elements: int) -> tuple[float, str] | None:
    """Largest difference of a statistic in proportion to golden's elements, and which it is.

    Maximum and minimum are divided by golden's largest magnitude, the mean by golden's root mean
    square, the L2 norm by itself. None if no statistic is known of both sides; infinite if golden
    is all zero and mine is not.
    """
    extremes = [
        abs(value)
        for value in (golden.max, golden.min)
        if value is not None and math.isfinite(value)
    ]
    magnitude = max(extremes, default=None)
    norm = golden.l2norm
    if norm is not None and not math.isfinite(norm):
        norm = magnitude
    rms = None if norm is None or not elements else norm / math.sqrt(elements)
    scales = {
        "max": magnitude,
        "min": magnitude,
        "mean": magnitude if rms is None else rms,
        "l2norm": norm,
    }
    found = []
    for name, scale in scales.items():
        g, m = getattr(golden, name), getattr(mine, name)
        if g is not None and m is not None and (scale is not None or not math.isfinite(g)):
            difference = _apart(golden=g, mine=m)
            error = difference / scale if scale else (math.inf if difference else 0.0)
            found.append((error, name))
    if not found:
        return None
    return next((each for each in found if math.isnan(each[0])), max(found))


def _apart(golden: float, mine: float) -> float:
    """``abs(mine - golden)``; 0 for two NaN and for the same infinity, NaN for one NaN."""
    if golden == mine or (math.isnan(golden) and math.isnan(mine)):
        return 0.0
    return abs(mine - golden)


def summary(statistics: Statistics) -> SideSummary:
    """The statistics as a report's columns."""
    return SideSummary(
        max=statistics.max,
        min=statistics.min,
        mean=statistics.mean,
        norm=statistics.l2norm,
        nan=statistics.nan or 0,
        inf=statistics.inf or 0,
    )


def _different_counts(golden: Statistics, mine: Statistics) -> list[str]:
    found = []
    for name, label in (("nan", "NaN"), ("inf", "infinite")):
        g, m = getattr(golden, name), getattr(mine, name)
        if g is not None and m is not None and g != m:
            found.append(f"golden has {g} {label} elements, mine {m}")
    return found


def _has_no_finite(golden: Statistics, mine: Statistics) -> bool:
    return all(getattr(side, name) is None for side in (golden, mine) for name in NAMES)
