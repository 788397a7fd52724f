"""One row of the table of two runs on different numbers of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.item import Item
from ait_llm.compare.api.statistics_rules import Cell
from ait_llm.core.comparison import Verdict

UNKNOWN = "layout unknown"
METRICS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
STATISTICS = ("max", "min", "mean", "l2norm")


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A tensor or scalar of one call on all ranks of both sides.

    Attributes:
        mine, golden: of the first rank that has it; None if the side does not.
        my_shapes, golden_shapes: of all ranks, as text.
        verdict: PASS, FAIL, or SKIPPED where it was not compared.
        reason: why not, or what is wrong.
        layout: how the ranks share it; None if that is not known.
        off: ranks of the side with more of them whose part is wrong.
        cells: metrics of all parts together, or statistics of both sides put together.
    """

    mine: Item | None
    golden: Item | None
    my_shapes: str
    golden_shapes: str
    verdict: Verdict
    reason: str = ""
    layout: str = ""
    off: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def item(self) -> Item:
        """My item, or golden's where mine is missing."""
        item = self.mine if self.mine is not None else self.golden
        assert item is not None
        return item


def columns_of(mode: Mode) -> list[str]:
    """Header of the table."""
    found = ["NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype"]
    found += ["NPU Tensor Shape", "Bench Tensor Shape", "Layout", "Rank"]
    if mode == "tensor":
        found += METRICS
    elif mode == "statistics":
        found += [f"{side} {name}" for side in ("NPU", "Bench") for name in STATISTICS]
    return [*found, "Result", "Err_message"]


def cells_of(row: ShardRow, mode: Mode) -> list[Cell]:
    """Cells in the order of :func:`columns_of`."""
    found: list[Cell] = [
        getattr(item, name) if item is not None else "N/A"
        for name in ("name", "dtype")
        for item in (row.mine, row.golden)
    ]
    found += [row.my_shapes, row.golden_shapes]
    found += [row.layout or "N/A", ",".join(map(str, row.off))]
    count = {"tensor": len(METRICS), "statistics": 2 * len(STATISTICS), "md5": 0}[mode]
    found += row.cells[:count] if row.cells else ("N/A",) * count
    return [*found, row.verdict.value, row.reason]
