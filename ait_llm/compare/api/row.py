"""One row of a result table while it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ait_llm.compare.api.columns import METRICS, RELATIVES, Mode
from ait_llm.compare.api.item import NOT_AVAILABLE, Item
from ait_llm.compare.api.matching import Pair
from ait_llm.compare.api.real_data import RealData
from ait_llm.compare.api.statistics_rules import Cell, difference_cells
from ait_llm.compare.api.verdicts import PASSED, Judged, judge_row
from ait_llm.judge import Tolerance


@dataclass(slots=True)
class Row:
    """A pair of items, what was measured, and what it means.

    Attributes:
        mine, golden: one of them may be missing.
        cells: six metrics of real data, or four differences and four relative errors, or nothing.
        notes: what was met while measuring.
        custom: values of the user's own metrics.
        result: content of the result column.
        messages: content of the message column, in order.
        colour: ``red``, ``yellow`` or empty.
        judged: what it counts as.
    """

    mine: Item | None
    golden: Item | None
    cells: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    custom: tuple[Cell, ...] = ()
    result: str = ""
    messages: list[str] = field(default_factory=list)
    colour: str = ""
    judged: Judged = PASSED

    @property
    def item(self) -> Item:
        """My item, or golden's where mine is missing."""
        item = self.mine if self.mine is not None else self.golden
        assert item is not None
        return item

    @property
    def matched(self) -> bool:
        """True if both sides are there."""
        return self.mine is not None and self.golden is not None

    @property
    def is_output(self) -> bool:
        """True for what a call produced; parameter gradients count as its inputs."""
        return self.item.state == "output"

    @property
    def consistent(self) -> bool:
        """True if both sides say the same of ``requires_grad``."""
        mine, golden = self.mine, self.golden
        if mine is not None and golden is not None and mine.requires_grad is golden.requires_grad:
            return True
        return _grad(mine) == _grad(golden)

    def metric(self, name: str) -> Cell:
        """One of the real-data metrics."""
        return self.cells[METRICS.index(name)]

    def relative(self, name: str) -> float | None:
        """One of the relative errors of statistics as a fraction; None if it is no number.

        An infinite one, golden being zero or a side infinite, is infinity.
        """
        return fraction(self.cells[4 + RELATIVES.index(name)])

    def difference(self) -> float | None:
        """The difference of the maxima; None if it is no number."""
        cell = self.cells[0]
        if isinstance(cell, str):
            return math.inf if cell in ("inf", "-inf") else None
        return abs(float(cell)) if cell is not None else None

    def extreme(self, side: str) -> tuple[Any, Any]:
        """Max and min of one side, ``mine`` or ``golden``; ``N/A`` where it is missing."""
        item = self.mine if side == "mine" else self.golden
        return (NOT_AVAILABLE,) * 2 if item is None else item.statistics[:2]


def fraction(cell: Cell) -> float | None:
    """A cell such as ``12.5%`` as 0.125; infinity for ``inf``; None for other text."""
    if isinstance(cell, str):
        if cell.endswith("%"):
            return float(cell[:-1]) / 100
        return math.inf if cell in ("inf", "-inf") else None
    return float(cell) if cell is not None else None


def number(cell: Cell) -> float | None:
    """A cell as a number; None for text and for nothing."""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return float(cell)
    return None


def is_not_finite(value: Any) -> bool:
    """True for NaN and infinities among recorded numbers."""
    return isinstance(value, float) and not math.isfinite(value)


def make_row(
    pair: Pair, mode: Mode, measured: RealData | None, tolerance: Tolerance | None = None
) -> Row:
    """A row with what was measured, and what it counts as.

    Args:
        pair: the items.
        mode: what is compared.
        measured: metrics of the values, for real data.
        tolerance: limits of the user.
    """
    mine, golden = pair
    judged = judge_row(mine, golden, mode, None if measured is None else measured.judged, tolerance)
    if mode == "tensor":
        assert measured is not None
        found = measured.cells, measured.messages, measured.custom
        return Row(mine, golden, *found, judged=judged)
    if mode == "statistics":
        return Row(mine, golden, difference_cells(mine, golden), judged=judged)
    return Row(mine, golden, judged=judged)


def _grad(item: Item | None) -> str:
    return NOT_AVAILABLE if item is None else str(item.requires_grad)
