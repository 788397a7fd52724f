"""Rows for which an engine chose other experts than golden, by scores that lie too close."""

from __future__ import annotations

import numpy as np

from ait_llm.compare.chosen_rows import OtherRows, _Tie
from ait_llm.compare.near_choices import near_choices
from ait_llm.program.schedule import Schedule, Stretch

GOLDEN = np.array([[0, 1], [2, 0], [3, 1]])


def scores(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


def test_the_same_experts_in_another_order_are_no_other_choice() -> None:
    mine = scores([2, 3, 0, 0], [1, 0, 4, 0], [0, 4, 0, 3])
    assert near_choices(GOLDEN, mine, 0.03) == []


def test_a_choice_by_scores_within_rounding_is_found() -> None:
    mine = scores([3, 2, 0, 0], [1, 1.01, 4, 0], [0, 4, 0, 3])
    [found] = near_choices(GOLDEN, mine, 0.03)
    assert (found.row, found.golden, found.mine) == (1, (0,), (1,))
    assert abs(found.margin - 0.01) < 1e-9


def test_a_choice_by_scores_that_are_apart_is_a_fault_and_excuses_none() -> None:
    mine = scores([3, 2, 0, 0], [1, 1.01, 4, 0], [0, 4, 5, 3])
    assert near_choices(GOLDEN, mine, 0.03) == []


def test_scores_that_are_the_same_number_do_not_tell_what_was_chosen() -> None:
    mine = scores([3, 2, 0, 0], [1, 1, 4, 0], [0, 4, 0, 3])
    [found] = near_choices(GOLDEN, mine, 0.03)
    assert (found.row, found.golden, found.mine, found.is_tied) == (1, (0,), (1,), True)


def test_rows_that_differ_before_are_not_looked_at() -> None:
    mine = scores([3, 2, 0, 0], [1, 1.01, 4, 0], [0, 4, 5, 3])
    assert [each.row for each in near_choices(GOLDEN, mine, 0.03, {2})] == [1]


def test_a_prefix_of_such_tokens_makes_other_requests_differ() -> None:
    tie = _Tie(5, "layers.0.experts", "layers.1.norm")
    rows = OtherRows(ties={"a": [tie]})
    after = Stretch("b", 0, 32, 3, cached=32)
    before = Stretch("c", 3, 4, 2, cached=4)
    rows._inherit(Schedule(2, (after, before)))
    assert rows.ties == {"a": [tie], "b": [tie]}
