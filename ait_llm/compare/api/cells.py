"""A judged row to the cells of its table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ait_llm.compare.api.columns import Mode, Style
from ait_llm.compare.api.item import NO_FILE, NOT_AVAILABLE, Item
from ait_llm.compare.api.manual_results import manual_message
from ait_llm.compare.api.release_results import release_message
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.statistics_rules import Cell, statistics_cells


def cells_of(row: Row, mode: Mode, style: Style, stack: str | None) -> list[Cell]:
    """Cells in the order of :func:`ait_llm.compare.api.columns.columns_of`.

    Args:
        row: the row.
        mode: what is compared.
        style: whose table.
        stack: the call stack's cell; None for a table without that column.
    """
    mine, golden = row.mine, row.golden
    found: list[Cell] = [
        _of(mine, "name"),
        _of(golden, "name"),
        _of(mine, "dtype"),
        _of(golden, "dtype"),
        _of(mine, "shape"),
        _of(golden, "shape"),
        _of(mine, "requires_grad"),
        _of(golden, "requires_grad"),
    ]
    if mode == "md5":
        found += [_of(mine, "md5"), _of(golden, "md5")]
    else:
        found += row.cells
        found += row.custom
        found += statistics_cells(mine, golden)
    message = release_message(row) if style == "release" else manual_message(row)
    found += [row.consistent, row.result, message]
    if stack is not None:
        found.append(stack)
    if mode == "tensor":
        found.append(str([_file(mine), _file(golden)]))
    return found


def as_text(cells: Sequence[Cell]) -> list[str]:
    """Cells as a csv file holds them; a blank keeps spreadsheets from losing an infinity."""
    return [_text(cell) for cell in cells]


def _text(cell: Cell) -> str:
    if isinstance(cell, float) and math.isinf(cell):
        return f" {cell}"
    return str(cell)


def _of(item: Item | None, name: str) -> Any:
    return NOT_AVAILABLE if item is None else getattr(item, name)


def _file(item: Item | None) -> str:
    return NOT_AVAILABLE if item is None else item.data_name or NO_FILE
