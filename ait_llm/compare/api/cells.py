"""A judged row to the cells of its table."""

from __future__ import annotations

from ait_llm.compare.api.columns import Mode, Style
from ait_llm.compare.api.item import NO_FILE, NOT_AVAILABLE, Item
from ait_llm.compare.api.manual_results import manual_message
from ait_llm.compare.api.release_results import release_message
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.statistics_rules import Cell, statistics_cells

_NOBODY = Item(
    *(NOT_AVAILABLE, "", "input", NOT_AVAILABLE, NOT_AVAILABLE),
    (NOT_AVAILABLE,) * 4,
    md5=NOT_AVAILABLE,
)


def cells_of(row: Row, mode: Mode, style: Style, stack: str | None) -> list[Cell]:
    """Cells in the order of :func:`ait_llm.compare.api.columns.columns_of`.

    Args:
        row: the row.
        mode: what is compared.
        style: whose table.
        stack: the call stack's cell; None for a table without that column.
    """
    mine, golden = row.mine, row.golden
    m, g = mine or _NOBODY, golden or _NOBODY
    found: list[Cell] = [
        m.name,
        g.name,
        m.dtype,
        g.dtype,
        m.shape,
        g.shape,
        m.requires_grad,
        g.requires_grad,
    ]
    if mode == "md5":
        found += [m.md5, g.md5]
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


def _file(item: Item | None) -> str:
    return NOT_AVAILABLE if item is None else item.data_name or NO_FILE
