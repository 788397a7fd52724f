"""Which steps are looked at, and what they say about the others.

Everything that grows with a step grows by the same amount with each: caches by one position, masks
by one column. Between two steps that were looked at sizes are therefore taken to lie on a straight
line, and so is what lies beyond the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ait_llm.core import StepRange

_FURTHEST = 1 << 20


def steps_to_look_at(wanted: StepRange) -> StepRange:
    """A few steps of a range: the first three, further ones at doubled distances, and the last."""
    first = min(start for start, _ in wanted.intervals)
    last = max(end for _, end in wanted.intervals)
    steps = {first, first + 1, first + 2}
    distance = 4
    while distance <= _FURTHEST:
        steps.add(first + distance)
        distance *= 2
    if last <= first + _FURTHEST:
        steps = {step for step in steps if step <= last} | {last}
        # What comes before the last of them is on a line with it, and their distance shows it.
        steps |= {last - 1} if last - 1 > first else set()
    return StepRange(tuple((step, step) for step in sorted(steps)))


def weights_of(seen: Iterable[int], count: int | None, wanted: StepRange) -> dict[int, float]:
    """How often each step that was looked at counts, so that their sum is that of all wanted steps.

    Args:
        seen: steps that were looked at and that the program reached.
        count: steps that the program has; None if only those that were seen are known.
        wanted: steps to add up.

    Returns:
        Weights by step. They may be negative beyond the last step that was looked at.
    """
    samples = sorted(seen)
    weights = dict.fromkeys(samples, 0.0)
    if not samples:
        return weights
    end = (samples[-1] + 1) if count is None else count
    for first, last in _merged(wanted):
        _add_interval(weights, samples, first, min(last, end - 1))
    return weights


def count_of(count: int | None, seen: Iterable[int], wanted: StepRange) -> int:
    """How many of the wanted steps the program has."""
    end = max((step + 1 for step in seen), default=0) if count is None else count
    return sum(max(0, min(last, end - 1) - first + 1) for first, last in _merged(wanted))


def _merged(steps: StepRange) -> list[tuple[int, int]]:
    """Intervals without overlaps, ascending."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(steps.intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _add_interval(weights: dict[int, float], samples: Sequence[int], first: int, last: int) -> None:
    if first > last:
        return
    if first <= samples[0]:  # before the first of them, and itself
        weights[samples[0]] += min(last, samples[0]) - first + 1
    for left, right in pairwise(samples):
        _add_line(weights, left, right, max(first, left + 1), min(last, right))
    if last > samples[-1]:
        beyond = max(first, samples[-1] + 1)
        # The first step is often a prefill, which is on no line with those that follow.
        if len(samples) > 2:
            _add_line(weights, samples[-2], samples[-1], beyond, last)
        else:
            weights[samples[-1]] += last - beyond + 1


def _add_line(weights: dict[int, float], left: int, right: int, first: int, last: int) -> None:
    """Add the steps of an interval that lie on the line through two steps."""
    number = last - first + 1
    if number <= 0:
        return
    # Sum of (step - left) / (right - left) over the interval.
    share = ((first - left) + (last - left)) * number / 2 / (right - left)
    weights[right] += share
    weights[left] += number - share
