"""Where the error of a run grows.

The tolerance of a comparison allows for the error of many layers. In the first layers much of it is
still unused, and an operation may be wrong without exceeding it. Where the error of a tensor is a
multiple of all errors before it, the operations in between are worth recomputing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.compare.origin_run import operation_key, record_key
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.roundings import is_of_sums, rounding_of
from ait_llm.core.comparison import Comparison
from ait_llm.judge.pairs import DISTANCE
from ait_llm.program.flow import parents_of
from ait_llm.program.one_pass import Pass

# Twice the error of all tensors before, and of one rounding of each side.
_FACTOR = 2.0
# The error of a pair that agrees to the last bit still counts as this much, so that a first
# rounding is no infinite growth.
_FLOOR = 2.0**-13


def sudden_growth(
    run: Pass, comparisons: Sequence[Comparison], indices: Sequence[int]
) -> Iterator[int]:
    """Comparisons of a run at which the error grows suddenly, in execution order.

    The first that is not exact is one of them, where some before it are: with one implementation
    on both sides nothing but a fault or a definition explains even a small error, but for one that
    sums of float32 in another order leave.

    Args:
        run: my run.
        comparisons: all of the report, in execution order of my side.
        indices: those of the run.
    """
    # What has members is listed before them, with the error that they end with.
    around = {parent for parent in parents_of(run) if parent is not None}
    graphs = {operation_key(run.operations[op]) for op in around}
    largest, exact = 0.0, 0
    for index in indices:
        item = comparisons[index]
        if item.mine is None or item.golden is None or record_key(item.mine) in graphs:
            continue
        error = item.values.get(DISTANCE)
        if error is None:
            continue
        roundings = [rounding_of(record) for record in (item.golden, item.mine)]
        is_first = bool(exact and error and not largest) and not is_of_sums(item)
        if is_first or error > _FACTOR * max(largest, *roundings):
            yield index
        exact += not error
        largest = max(largest, error)


def growth(values: RunValues, op: int) -> float:
    """By what factor the relative error grew from the compared values before to those after."""
    after = [_error_after(values, value.number) for value in values.outputs(op)]
    before = [
        error for value in values.inputs(op) for error in _errors_before(values, value.number)
    ]
    return max(after, default=0.0) / max([*before, _FLOOR])


def _error_after(values: RunValues, value: int) -> float:
    """Error of a value, or of the first compared values computed from it."""
    after = compared_after(values, [value])
    return max((error for each in after if (error := values.error(each)) is not None), default=0.0)


def compared_after(values: RunValues, numbers: Sequence[int]) -> list[int]:
    """Those of some values that were compared, else the first compared ones computed from them."""
    seen, pending = set(numbers), list(numbers)
    while pending:
        compared = [each for each in pending if each in values.evidence]
        if compared:
            return compared
        following = [
            output.number
            for each in pending
            for use in values.flow.values[each].reads
            if values.is_leaf(use.op)
            for output in values.outputs(use.op)
        ]
        pending = [each for each in dict.fromkeys(following) if each not in seen]
        seen.update(pending)
    return []


def _errors_before(values: RunValues, value: int) -> list[float]:
    """Errors of the nearest compared values that a value was computed from."""
    error = values.error(value)
    if error is not None:
        return [error]
    ends = values.upstream(value).agreeing
    return [error for each in ends if (error := values.error(each)) is not None]
