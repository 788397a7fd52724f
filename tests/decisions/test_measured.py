"""Parts of a change that are measured where gradients miss it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ait_llm.decisions.measured import MOST_RUNS, MeasuredParts, Part

Parts = Sequence[float]


def find(effects: Parts, gradients: Parts) -> tuple[list[Part], int]:
    measured = MeasuredParts(
        [gradients], [sum(effects)], lambda count: [sum(effects[:count])], len(effects)
    )
    (parts,) = measured.find()
    return parts, measured.runs


EFFECTS = st.lists(st.floats(-1, 1), min_size=1, max_size=200)


@given(EFFECTS)
def test_gradients_that_add_up_need_no_run(effects: list[float]) -> None:
    parts, runs = find(effects, effects)
    assert not runs
    assert [part.change for part in parts] == effects
    assert not any(part.measured for part in parts)


@given(EFFECTS, st.data())
def test_each_error_is_in_one_part_and_the_parts_are_near_the_change(
    effects: list[float], data: st.DataObject
) -> None:
    assume(sum(effects))
    size = len(effects)
    gradients = data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size))
    parts, runs = find(effects, gradients)
    numbers = [at for part in parts for at in range(part.first, part.last + 1)]
    assert numbers == list(range(size))
    assert runs <= MOST_RUNS
    # each of what stays a gradient may be off by a fortieth of the change
    off = abs(sum(part.change for part in parts) - sum(effects))
    assert off <= abs(sum(effects)) * (0.05 + (MOST_RUNS + 1) * 0.025) + 1e-9


@pytest.mark.parametrize("size", [2, 3, 100, 4096])
@pytest.mark.parametrize("where", [0, 0.4, 1])
def test_the_error_that_tips_a_choice_is_found_in_as_many_runs_as_halves(
    size: int, where: float
) -> None:
    culprit = round(where * (size - 1))
    gradients = [1e-3 / size] * size
    effects = list(gradients)
    effects[culprit] = -2.0
    parts, runs = find(effects, gradients)
    (measured,) = [part for part in parts if part.measured and abs(part.change) > 1]
    assert (measured.first, measured.last) == (culprit, culprit)
    assert measured.change == pytest.approx(-2.0)
    assert runs <= 12


def test_without_gradients_what_was_not_split_is_one_part() -> None:
    parts, _ = find([0.0] * 700 + [1.0, 0.5] + [0.0] * 300, [])
    assert sum(part.change for part in parts) == pytest.approx(1.5)
    assert all(part.measured for part in parts)
    assert [(p.first, p.last) for p in parts if p.change == 1.0] == [(700, 700)]


def test_a_run_without_such_an_answer_splits_nothing() -> None:
    measured = MeasuredParts([[]], [1.0], lambda _count: [None], 16)
    assert measured.find() == [[Part(0, 15, 1.0, measured=True)]]
    assert measured.runs == 1


def test_a_margin_that_does_not_change_needs_no_run() -> None:
    measured = MeasuredParts([[0.25, -0.5]], [0.0], lambda _count: [0.0], 2)
    (parts,) = measured.find()
    assert [part.change for part in parts] == [0.25, -0.5]
    assert not measured.runs


def test_runs_serve_all_choices() -> None:
    effects = [[0.0] * 7 + [3.0], [2.0] + [0.0] * 7]
    measured = MeasuredParts(
        [[], []], [3.0, 2.0], lambda count: [sum(each[:count]) for each in effects], 8
    )
    last, first = measured.find()
    assert [(p.first, p.last) for p in last if p.change] == [(7, 7)]
    assert [(p.first, p.last) for p in first if p.change] == [(0, 0)]
    assert measured.runs == 5


@given(st.integers(0, 40), st.integers(1, 40), st.data())
def test_roundings_are_one_part_that_one_run_measures(
    roundings: int, others: int, data: st.DataObject
) -> None:
    culprit = data.draw(st.integers(0, others - 1))
    effects = [0.01] * roundings + [0.0] * others
    effects[roundings + culprit] = 5.0
    measured = MeasuredParts(
        [[]], [sum(effects)], lambda count: [sum(effects[:count])], len(effects), roundings
    )
    (parts,) = measured.find()
    assert [(p.first, p.last) for p in parts if p.change > 1] == [(roundings + culprit,) * 2]
    assert all(p.last < roundings or p.first >= roundings for p in parts)
    assert measured.runs <= 7
