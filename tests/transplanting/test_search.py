"""The search, on a side that computes its damage by a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ait_llm.transplanting.answer import Damage
from ait_llm.transplanting.result import Suspect
from ait_llm.transplanting.search import Found, search


class Formula:
    """Errors of operators that add up in quadrature, as independent ones do."""

    notes: list[str] = []  # noqa: RUF012 - of a stand-in
    differs = True

    def __init__(self, errors: Sequence[float], *, floor: float = 0.0, stops: int = 0) -> None:
        self._errors, self._floor, self._stops = errors, floor, stops

    @property
    def places(self) -> int:
        return len(self._errors)

    def before(self) -> Damage:
        return self._left(set())

    def suspects(self, tell: Callable[[str], None]) -> list[Found]:
        tell("all")
        return [
            Found(Suspect(str(number), "Linear", "outtensor0", 0, (0,), 0.1))
            for number in range(len(self._errors))
        ]

    def damage(self, healed: Sequence[Found], number: int) -> Damage:
        if number == self._stops:
            raise KeyboardInterrupt
        return self._left({int(each.suspect.op) for each in healed})

    def _left(self, healed: set[int]) -> Damage:
        rest = [error for number, error in enumerate(self._errors) if number not in healed]
        return Damage(math.hypot(self._floor, *rest))


@given(st.integers(1, 600), st.data())
def test_one_culprit_takes_no_more_runs_than_promised(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, count - 1))
    errors = [1.0 if number == culprit else 1e-6 for number in range(count)]
    result = search(Formula(errors), Path(), 10_000)
    assert [each.op for each in result.needed] == [str(culprit)]
    of_mine = 1 + result.runs  # that of mine as it is was made before
    assert of_mine <= 2 * math.ceil(math.log2(count)) + 8


def test_shares_are_those_of_the_formula() -> None:
    result = search(Formula([0.6, 0.8, 1e-9]), Path(), 100)
    first, second = result.needed
    assert (first.op, second.op) == ("1", "0")
    assert first.harms is not None
    assert math.isclose(first.harms, 0.8, rel_tol=1e-6)
    assert first.heals is not None
    assert math.isclose(first.heals, 1 - 0.6, rel_tol=1e-6)


def test_what_all_suspects_leave_is_not_asked_of_fewer() -> None:
    result = search(Formula([1.0, 0.2], floor=0.2), Path(), 100)
    assert [each.op for each in result.needed] == ["0"]  # 0.28 is left, and 0.31 may be
    worse = search(Formula([1.0, 0.5], floor=0.2), Path(), 100)
    assert len(worse.needed) == 2


def test_an_error_that_no_suspect_has_is_not_found_in_one() -> None:
    result = search(Formula([0.1], floor=1.0), Path(), 100)
    assert result.status == "equal"  # the floor is what is left of it in any case
    result = search(Formula([0.9, 0.1], floor=0.6), Path(), 100)
    assert result.status == "undecided"
    assert "what differs is in no value that both capture" in result.reason


def test_who_ends_a_search_keeps_what_is_known() -> None:
    result = search(Formula([1.0, 1.0], stops=3), Path(), 100)
    assert result.status == "interrupted"
    assert result.code == 130
    assert result.floor is not None
    assert [each.op for each in result.suspects] == ["0", "1"]
