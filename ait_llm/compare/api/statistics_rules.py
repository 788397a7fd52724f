"""Differences of recorded statistics, cell by cell as msprobe's compare writes them."""

from __future__ import annotations

import math
from typing import Any

from ait_llm.compare.api.item import NOT_AVAILABLE, Item, is_number

NAN = "Nan"
UNLIKE = "Diff"
_DEVICES = ("npu", "cpu", "cuda")
Cell = Any  # text, a number, a truth value or None


def shown(value: Any) -> Cell:
    """A recorded statistic as a table shows it."""
    return NAN if isinstance(value, float) and math.isnan(value) else value


# Differences of statistics that are the same, which most are.
NO_DIFFERENCES: tuple[Cell, ...] = (0,) * 8


def statistics_cells(mine: Item | None, golden: Item | None) -> list[Cell]:
    """The eight recorded statistics, mine first; ``N/A`` for a missing side."""
    if mine is not None and golden is not None and _are_same(mine, golden):
        found = [NAN if value != value else value for value in mine.statistics]
        return found + found
    cells: list[Cell] = []
    for side in (mine, golden):
        cells += (NOT_AVAILABLE,) * 4 if side is None else map(shown, side.statistics)
    return cells


def difference_cells(mine: Item | None, golden: Item | None) -> tuple[Cell, ...]:
    """Four differences, then four relative errors in per cent.

    Of max, min, mean and norm in this order: mine - golden, and ``abs((mine - golden) / golden)``
    as text with a per cent sign. ``N/A`` where a side is missing, ``Nan`` where one is NaN,
    ``Diff`` where values that are no numbers differ.
    """
    if mine is None or golden is None:
        return (NOT_AVAILABLE,) * 8
    if _are_same(mine, golden):
        return NO_DIFFERENCES
    pairs = [_difference(m, g) for m, g in zip(mine.statistics, golden.statistics, strict=True)]
    return (*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))


def _are_same(mine: Item, golden: Item) -> bool:
    """True for equal statistics of one type: 1 and True are equal, and shown differently."""
    return mine.statistics == golden.statistics and mine.dtype == golden.dtype


def _difference(mine: Any, golden: Any) -> tuple[Cell, Cell]:
    if mine == golden or str(mine) == str(golden):
        return 0, 0
    if is_number(mine) and is_number(golden):
        return _of_numbers(mine, golden)
    m, g = str(mine), str(golden)
    if NOT_AVAILABLE in (m, g) or (m.startswith(_DEVICES) and g.startswith(_DEVICES)):
        return NOT_AVAILABLE, NOT_AVAILABLE
    return UNLIKE, UNLIKE


def _of_numbers(mine: float, golden: float) -> tuple[Cell, Cell]:
    if math.isnan(mine) or math.isnan(golden):
        return NAN, NAN
    if math.isinf(mine) or math.isinf(golden):
        sign = "inf" if mine > golden else "-inf"
        return sign, sign
    difference = float(mine - golden)
    if golden == 0:
        return difference, "inf"
    return difference, f"{abs(difference / golden * 100)}%"
