"""Rotary positions: tables of cosines and sines, and what they turn.

The tables come in two orders. Each angle stands twice in a row: in both halves (``a b c a b c``)
or side by side (``a a b b c c``). A table shows its own order, so nothing of the other side is
needed to know it.
"""

from __future__ import annotations

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.links import LIKELY, Link, Links
from ait_llm.match.programs.turned import turned
from ait_llm.program.describe import is_float, params_of, size_of, width_of
from ait_llm.program.flow import Value
from ait_llm.program.layers import Block
from ait_llm.program.program import Program
from ait_llm.program.roles import Role
from ait_llm.program.tables import RotaryTables

_HALVES = 2  # coefficient of ATB's rotary operation for angles in both halves


class RotaryLinks:
    """Links what ATB's rotary operations read and give.

    Args:
        left, right: the sides.
        links: what is linked already; extended.
    """

    def __init__(self, left: Program, right: Program, links: Links) -> None:
        self._left = left
        self._right = right
        self._links = links
        self._tables = RotaryTables(left), RotaryTables(right)

    def add_tables(self) -> None:
        """Link the tables that ATB's rotary operation reads with what torch's module gives."""
        tables = self._right_tables()
        for op, role in enumerate(self._left.roles):
            if role is not Role.ROTARY or not tables or self._left.has_modules:
                continue
            inputs = self._left.operations[op].inputs
            for index, table in zip((2, 3), tables, strict=True):
                tensor = next((t for t in inputs if t.index == index), None)
                if tensor is None or table is None:
                    continue
                value = self._left.value(op, tensor)
                theirs = table.uses[0].tensor
                columns = table_columns(tensor, theirs, _coefficient(self._left, op))
                if columns is not None:
                    what = "cosine" if index == 2 else "sine"
                    self._links.add(
                        value,
                        table,
                        LIKELY,
                        f"{what} of the rotary positions",
                        left_columns=columns[0],
                        right_columns=columns[1],
                    )
                    self._add_positions(value)

    def add_handed(self, left: Block, right: Block) -> None:
        """Link the cosines and sines that two layers of modules are handed."""
        if left.layer is None or right.layer is None or not self._left.has_modules:
            return
        ours, theirs = self._tables[0].of(left.layer), self._tables[1].of(right.layer)
        if ours is None or theirs is None or not self._right.has_modules:
            return
        for mine, other, what in zip(ours, theirs, ("cosine", "sine"), strict=True):
            tensors = mine.uses[0].tensor, other.uses[0].tensor
            columns = table_columns(*tensors, _HALVES)
            if columns is not None:
                self._links.add(
                    mine,
                    other,
                    LIKELY,
                    f"{what} of the rotary positions",
                    left_columns=columns[0],
                    right_columns=columns[1],
                )

    def add_rotated(self) -> None:
        """Link what ATB's rotary operation gives with what torch's operators compute."""
        tables = self._right_tables()
        if tables is None or tables[0] is None or Role.OPERATOR not in self._right.roles:
            return
        for op, role in enumerate(self._left.roles):
            if role is not Role.ROTARY:
                continue
            operation = self._left.operations[op]
            inputs = {tensor.index: self._left.value(op, tensor) for tensor in operation.inputs}
            for tensor in operation.outputs[:2]:
                source = inputs.get(tensor.index)
                if source is None:
                    continue
                found = [
                    self._turned(link, tables[0], size_of(link.right.uses[0].tensor))
                    for link in self._links.of_left.get(source.number, ())
                    if link.left_columns is None and link.right_columns is None
                ]
                what = ("query", "key")[tensor.index]
                for link, value in filter(None, found):
                    self._links.add(
                        self._left.value(op, tensor),
                        value,
                        min(link.confidence, LIKELY),
                        f"{what} turned by the rotary positions",
                        alternatives=link.alternatives,
                    )

    def add_composites(self) -> None:
        """Link what operators of both sides make of values that answer each other."""
        theirs = self._right.rotations
        for number, rotation in self._left.rotations.items():
            known = [link for link in self._links.of_left.get(number, ()) if link.is_whole]
            if len(known) == 1 and known[0].right.number in theirs:
                [link] = known
                reason = "the same turned by the rotary positions"
                confidence = min(link.confidence, LIKELY)
                self._links.add(
                    rotation.result, theirs[link.right.number].result, confidence, reason
                )

    def _turned(self, link: Link, table: Value, size: int) -> tuple[Link, Value] | None:
        value = turned(self._right, link.right, table, size)
        return None if value is None else (link, value)

    def _right_tables(self) -> tuple[Value | None, Value | None] | None:
        for op, role in enumerate(self._right.roles):
            operation = self._right.operations[op]
            if role is Role.ROTARY and len(operation.outputs) == 2:
                first, second = operation.outputs
                return self._right.value(op, first), self._right.value(op, second)
        return None

    def _add_positions(self, table: Value | None) -> None:
        """Link the positions by which a table is gathered with those that torch's module reads."""
        if table is None:
            return
        gathered = next((use.op for use in table.writes if use.op in self._left.unit_of), None)
        for op, role in enumerate(self._right.roles):
            if role is not Role.ROTARY or gathered is None:
                continue
            positions = next(
                (t for t in self._right.operations[op].inputs if not is_float(t)), None
            )
            if positions is not None:
                source = self._left.unit_of[gathered].source
                value = self._right.value(op, positions)
                self._links.add(source, value, LIKELY, "positions of the tokens")
                self._links.add_unit(gathered, op)
            return


def _coefficient(side: Program, op: int) -> int:
    number = params_of(side.operations[op]).get("rotaryCoeff")
    return number if isinstance(number, int) else 0


def table_columns(
    left: Tensor, right: Tensor, coefficient: int
) -> tuple[Columns | None, Columns | None] | None:
    """Which columns of two tables to compare; None if they have different widths.

    Args:
        left, right: ``[…, dim]``.
        coefficient: of the ATB operation, for a table that does not show its order.
    """
    width = width_of(left)
    if not width or width != width_of(right):
        return None
    assumed = "halves" if coefficient == _HALVES else "pairs"
    orders = order_of(left, assumed), order_of(right, "halves")
    if orders[0] == orders[1] or "either" in orders:
        return None, None
    pairs, halves = Columns(0, 1, width, (width // 2, 2, 1)), Columns(0, width // 2, width)
    return (pairs, halves) if orders[0] == "pairs" else (halves, pairs)


def order_of(tensor: Tensor, assumed: str) -> str:
    """Where a table has each angle a second time.

    Args:
        tensor: ``[…, dim]``.
        assumed: for a table that does not show it.

    Returns:
        ``halves``, ``pairs``, ``either`` for a table that has both orders, or ``assumed``.
    """
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
