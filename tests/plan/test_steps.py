"""Which steps are looked at, and what they say about the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.core import StepRange
from ait_llm.plan.steps import count_of, steps_to_look_at, weights_of

RANGES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 60)).map(lambda p: (p[0], p[0] + p[1])),
    min_size=1,
    max_size=4,
).map(lambda pairs: StepRange(tuple(pairs)))


def _steps(wanted: StepRange, count: int) -> list[int]:
    return [step for step in range(count) if step in wanted]


@given(RANGES, st.integers(1, 400), st.integers(0, 50), st.integers(1, 1000))
def test_sizes_on_a_line_after_the_prefill_are_added_up_exactly(
    wanted: StepRange, count: int, slope: int, prefill: int
) -> None:
    def size(step: int) -> int:
        return prefill if step == 0 else 100 + slope * step

    looked_at = steps_to_look_at(wanted)
    seen = [step for step in range(count) if step in looked_at]
    first = min(first for first, _ in wanted.intervals)
    weights = weights_of(seen, count, wanted)
    expected = sum(map(size, _steps(wanted, count)))
    if len(seen) > 2 or count <= first + 2:
        assert sum(weight * size(step) for step, weight in weights.items()) == pytest.approx(
            expected
        )
    assert count_of(count, seen, wanted) == len(_steps(wanted, count))


@given(RANGES)
def test_few_steps_are_looked_at(wanted: StepRange) -> None:
    looked_at = steps_to_look_at(wanted)
    assert len(looked_at.intervals) < 30
    first = min(first for first, _ in wanted.intervals)
    last = max(last for _, last in wanted.intervals)
    assert first in looked_at
    assert last in looked_at


def test_a_range_without_an_end_is_looked_at_further_and_further() -> None:
    steps = [first for first, _ in steps_to_look_at(StepRange.parse("all")).intervals]
    assert steps[:6] == [0, 1, 2, 4, 8, 16]
    assert len(steps) < 30


def test_steps_that_the_program_does_not_have_count_for_nothing() -> None:
    assert weights_of([0, 1], 2, StepRange.parse("0,99")) == {0: 1.0, 1: 1.0}
    assert count_of(2, [0, 1], StepRange.parse("0,99")) == 2
    assert weights_of([], 0, StepRange.parse("0,99")) == {}


def test_where_the_number_of_steps_is_unknown_the_last_seen_is_the_end() -> None:
    assert sum(weights_of([0, 1, 2, 4], None, StepRange.parse("all")).values()) == 5
