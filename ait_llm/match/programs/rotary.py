"""Rotary positions: tables of cosines and sines, and what they turn.

The tables come in two orders. Each angle stands twice in a row: in both halves (``a b c a b c``)
or side by side (``a a b b c c``). A table shows its own order, so nothing of the other side is
needed to know it.
"""

from __future__ import annotations

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.programs.links import LIKELY, Link, Links
from ait_llm.match.programs.shapes import Columns
from ait_llm.match.programs.turned import turned
from ait_llm.program.describe import is_float, params_of, size_of, width_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Side
from ait_llm.program.roles import Role

_HALVES = 2  # coefficient of ATB's rotary operation for angles in both halves


class RotaryLinks:
    """Links what ATB's rotary operations read and give.

    Args:
        atb, torch: the sides.
        links: what is linked already; extended.
    """

    def __init__(self, atb: Side, torch: Side, links: Links) -> None:
        self._atb = atb
        self._torch = torch
        self._links = links

    def add_tables(self) -> None:
        """Link the tables that ATB's rotary operation reads with what torch's module gives."""
        tables = self._torch_tables()
        for op, role in enumerate(self._atb.roles):
            if role is not Role.ROTARY or not tables:
                continue
            inputs = self._atb.operations[op].inputs
            for index, table in zip((2, 3), tables, strict=True):
                tensor = next((t for t in inputs if t.index == index), None)
                if tensor is None or table is None:
                    continue
                value = self._atb.value(op, tensor)
                theirs = table.uses[0].tensor
                columns = table_columns(tensor, theirs, _coefficient(self._atb, op))
                if columns is not None:
                    what = "cosine" if index == 2 else "sine"
                    self._links.add(
                        value,
                        table,
                        LIKELY,
                        f"{what} of the rotary positions",
                        atb_columns=columns[0],
                        torch_columns=columns[1],
                    )
                    self._add_positions(value)

    def add_turned(self) -> None:
        """Link what ATB's rotary operation gives with what torch's operators compute."""
        tables = self._torch_tables()
        if tables is None or tables[0] is None or Role.OPERATOR not in self._torch.roles:
            return
        for op, role in enumerate(self._atb.roles):
            if role is not Role.ROTARY:
                continue
            operation = self._atb.operations[op]
            inputs = {tensor.index: self._atb.value(op, tensor) for tensor in operation.inputs}
            for tensor in operation.outputs[:2]:
                source = inputs.get(tensor.index)
                if source is None:
                    continue
                found = [
                    self._turned(link, tables[0], size_of(link.torch.uses[0].tensor))
                    for link in self._links.of_atb.get(source.number, ())
                    if link.atb_columns is None and link.torch_columns is None
                ]
                what = ("query", "key")[tensor.index]
                for link, value in filter(None, found):
                    self._links.add(
                        self._atb.value(op, tensor),
                        value,
                        min(link.confidence, LIKELY),
                        f"{what} turned by the rotary positions",
                        alternatives=link.alternatives,
                    )

    def _turned(self, link: Link, table: Value, size: int) -> tuple[Link, Value] | None:
        value = turned(self._torch, link.torch, table, size)
        return None if value is None else (link, value)

    def _torch_tables(self) -> tuple[Value | None, Value | None] | None:
        for op, role in enumerate(self._torch.roles):
            operation = self._torch.operations[op]
            if role is Role.ROTARY and len(operation.outputs) == 2:
                first, second = operation.outputs
                return self._torch.value(op, first), self._torch.value(op, second)
        return None

    def _add_positions(self, table: Value | None) -> None:
        """Link the positions by which a table is gathered with those that torch's module reads."""
        if table is None:
            return
        gathered = next((use.op for use in table.writes if use.op in self._atb.unit_of), None)
        for op, role in enumerate(self._torch.roles):
            if role is not Role.ROTARY or gathered is None:
                continue
            positions = next(
                (t for t in self._torch.operations[op].inputs if not is_float(t)), None
            )
            if positions is not None:
                source = self._atb.unit_of[gathered].source
                value = self._torch.value(op, positions)
                self._links.add(source, value, LIKELY, "positions of the tokens")
                self._links.units.setdefault(gathered, set()).add(op)
            return


def _coefficient(side: Side, op: int) -> int:
    number = params_of(side.operations[op]).get("rotaryCoeff")
    return number if isinstance(number, int) else 0


def table_columns(
    atb: Tensor, torch: Tensor, coefficient: int
) -> tuple[Columns | None, Columns | None] | None:
    """Which columns of two tables to compare; None if they have different widths.

    Args:
        atb, torch: ``[…, dim]``.
        coefficient: of the ATB operation, for a table that does not show its order.
    """
    width = width_of(atb)
    if not width or width != width_of(torch):
        return None
    assumed = "halves" if coefficient == _HALVES else "pairs"
    orders = _order(atb, assumed), _order(torch, "halves")
    if orders[0] == orders[1] or "either" in orders:
        return None, None
    left, right = (
        Columns(0, 1, width, (width // 2, 2, 1))
        if order == "pairs"
        else Columns(0, width // 2, width)
        for order in orders
    )
    return left, right


def _order(tensor: Tensor, assumed: str) -> str:
    """``halves``, ``pairs``, or ``either`` for a table that has both orders."""
    try:
        rows = np.asarray(tensor.nd(), np.float64).reshape(-1, width_of(tensor))
    except AitError:
        return assumed
    half = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return assumed
    in_halves = np.array_equal(rows[:, :half], rows[:, half:])
    in_pairs = np.array_equal(rows[:, ::2], rows[:, 1::2])
    if in_halves and in_pairs:
        return "either"
    if in_halves == in_pairs:
        return assumed
    return "halves" if in_halves else "pairs"
