"""Numbers to a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ait_llm.core import DType, Verdict
from ait_llm.judge.tolerance import Limits, Tolerance, tolerance_for
from ait_llm.metrics.measure import Measurement
from ait_llm.metrics.precision import SMALLEST, coarser

DISTANCE = "relative_euclidean_distance"
ELEMENT = "max_element_error"
ABSOLUTE = "max_absolute_error"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one pair.

    Attributes:
        verdict: PASS or FAIL.
        reason: what is wrong, as a clause; empty for PASS.
        tolerance: limits that were applied, by the name of what they limit.
        needed: limits that would just have passed, by the same names; infinite where none would.
    """

    verdict: Verdict
    reason: str
    tolerance: Mapping[str, float]
    needed: Mapping[str, float]


def judge_pair(
    measurement: Measurement,
    golden_dtype: DType,
    my_dtype: DType,
    tolerance: Tolerance | None = None,
) -> Judgement:
    """Decide whether a pair agrees.

    PASS needs all of: the relative Euclidean distance is within its limit; no element is further
    away than ``max_element * (abs(g) + rms(g))``; no place differs where a side is not finite.
    Floating values that differ by no more than the smallest positive number of the coarser type
    pass, since nothing closer can be represented. Integers and bools must be equal.

    Args:
        measurement: from :func:`ait_llm.metrics.measure_pair`, with the ``max_element`` of the
            same tolerance.
        golden_dtype, my_dtype: logical element types.
        tolerance: the user's limits.

    Raises:
        ValueError: the measurement was made for a larger limit of single elements and is not
            exact enough for this one.
    """
    limits = tolerance_for(golden_dtype, my_dtype, tolerance)
    applied = (
        {ABSOLUTE: 0.0}
        if limits.exact
        else {
            DISTANCE: limits.relative_euclidean,
            ELEMENT: limits.max_element,
        }
    )
    if not measurement.count:
        return Judgement(Verdict.PASS, "", applied, {})  # of equal shapes, and nothing in them
    needed = _needed(measurement, limits, golden_dtype, my_dtype)
    reasons = []
    if measurement.bad:
        reasons.append(_not_finite(measurement))
    if limits.exact:
        different = measurement.unequal - measurement.bad
        if different:
            reasons.append(f"{different} of {measurement.count} elements differ")
    else:
        reasons += _exceeded(measurement, applied, needed)
    verdict = Verdict.FAIL if reasons else Verdict.PASS
    return Judgement(verdict, "; ".join(reasons), applied, needed)


def _needed(
    measurement: Measurement, limits: Limits, golden: DType, mine: DType
) -> dict[str, float]:
    largest = measurement.max_absolute_error
    if limits.exact:
        return {ABSOLUTE: math.inf if measurement.bad else largest or 0.0}
    if measurement.bad:
        return {DISTANCE: math.inf, ELEMENT: math.inf}
    if largest is None:  # all places equal and not finite
        return {DISTANCE: 0.0, ELEMENT: 0.0}
    dtype = coarser(golden, mine)
    if dtype is not None and largest <= SMALLEST[dtype]:
        return {DISTANCE: 0.0, ELEMENT: 0.0}
    distance, element = measurement.relative_euclidean, measurement.element_error
    assert element is not None
    if not measurement.element_error_exact and element > limits.max_element:
        raise ValueError("measure the pair with the tolerance that it is judged by")
    return {DISTANCE: math.inf if distance is None else distance, ELEMENT: element}


def _exceeded(
    measurement: Measurement, applied: Mapping[str, float], needed: Mapping[str, float]
) -> list[str]:
    if measurement.bad:
        needed = {
            DISTANCE: measurement.relative_euclidean or 0.0,
            ELEMENT: measurement.element_error or 0.0,
        }
    reasons = []
    if not needed[DISTANCE] <= applied[DISTANCE]:
        if math.isinf(needed[DISTANCE]):
            reasons.append("golden is zero everywhere and mine is not")
        else:
            reasons.append(
                f"relative Euclidean distance {needed[DISTANCE]:.3g} exceeds {applied[DISTANCE]:g}"
            )
    if not needed[ELEMENT] <= applied[ELEMENT] and not math.isinf(needed[ELEMENT]):
        reasons.append(
            f"an element is {needed[ELEMENT]:.3g} of its size and the tensor's root mean square "
            f"away, more than {applied[ELEMENT]:g}"
        )
    return reasons


def _not_finite(measurement: Measurement) -> str:
    where = f"first at flat index {measurement.first_bad}"
    if measurement.bad == 1:
        return f"NaN or Inf at one place where the other side differs, {where[6:]}"
    return f"NaN or Inf at {measurement.bad} places where the other side differs, {where}"
