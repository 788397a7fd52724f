"""Lines over the tokens of a run, in a page of a summary."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from ait_llm.report.summary import Curve
from ait_llm.report.summary.curves import curve


def drawn(lines: list[tuple[str, list[float]]], title: str = "a title") -> str:
    return "".join(curve(Curve(title, lines)))


def points(text: str) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, pair.split(","))) for pair in each.split()]  # type: ignore[misc]
        for each in re.findall(r'points="([^"]*)"', text)
    ]


def test_larger_numbers_are_higher_and_later_ones_further_right() -> None:
    (line,) = points(drawn([("one", [0.0, 2.0, 1.0])]))
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert line[1][1] < line[2][1] < line[0][1]


def test_lines_share_one_scale_and_what_is_not_finite_is_left_out() -> None:
    one, other = points(drawn([("one", [1.0, math.nan, 3.0]), ("other", [3.0, math.inf, 1.0])]))
    assert [y for _, y in one] == [y for _, y in reversed(other)]
    assert len(one) == 2


def test_a_hostile_title_stays_text() -> None:
    text = drawn([("<b>", [1.0])], '"><script>')
    assert "<script>" not in text
    assert "<b>" not in text
    ElementTree.fromstring(text)


def test_a_spike_among_many_numbers_is_kept() -> None:
    numbers = [0.0] * 100_000
    numbers[777] = 5.0
    (line,) = points(drawn([("one", numbers)]))
    assert len(line) <= 2000
    assert min(y for _, y in line) < 11


def test_nothing_finite_draws_nothing() -> None:
    assert drawn([("one", [math.nan])]) == ""
