"""The smallest set that is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ait_llm.transplanting.sets import smallest_set


@st.composite
def culprits(draw: st.DrawFn) -> tuple[int, set[int]]:
    count = draw(st.integers(1, 200))
    return count, draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))


@given(culprits())
def test_exactly_the_culprits_are_found(case: tuple[int, set[int]]) -> None:
    count, wanted = case
    assert set(smallest_set(range(count), lambda some: wanted <= set(some))) == wanted


@given(st.integers(2, 5000), st.data())
def test_one_culprit_takes_two_tests_for_each_halving(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, count - 1))
    tests = 0

    def is_enough(some: Sequence[int]) -> bool:
        nonlocal tests
        tests += 1
        return culprit in some

    assert smallest_set(range(count), is_enough) == [culprit]
    assert tests <= 2 * math.ceil(math.log2(count)) + 1


def test_of_two_that_are_enough_the_likelier_one_is_found() -> None:
    assert smallest_set([3, 1, 2], lambda some: bool({1, 2} & set(some))) == [1]


def test_the_set_has_the_order_of_the_candidates() -> None:
    assert smallest_set([5, 1, 4, 0], lambda some: {0, 5} <= set(some)) == [5, 0]
