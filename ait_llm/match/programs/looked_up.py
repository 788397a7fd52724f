"""Cosines and sines that one side hands on and the other one looks up in a table of all positions.

Two turns by rotary positions that answer each other take the same cosines and sines. Where an
operator looks them up itself, its table shows them in the rows of the positions that it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.anchors.ports import PortKey, key_of
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.likeness import Likeness
from ait_llm.match.programs.links import Links
from ait_llm.match.programs.rotary import order_of
from ait_llm.match.programs.row_spaces import Shape
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.views import Reshape, Rows, View
from ait_llm.program.describe import integers, shape_of, width_of
from ait_llm.program.flow import Use, Value
from ait_llm.program.program import Program
from ait_llm.program.rotations import Rotation


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A tensor of the other side that answers one of this side.

    Attributes:
        other: the tensor, where it is shown.
        views: of the tensor that was asked about.
        other_views: of the other one.
        reason: why.
    """

    other: Use
    views: tuple[View, ...]
    other_views: tuple[View, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Known:
    """Rows of a table that answer a tensor with a row for each token.

    Attributes:
        table: of all positions.
        rows: of the table, one for each token of its side.
        lead: dims of the positions.
        columns: of the table.
        apart: where the other side shows them first.
        reason: which they are.
    """

    table: Use
    rows: tuple[int, ...]
    lead: Shape
    columns: Columns
    apart: Use
    reason: str


class LookedUpTables:
    """Tables of either side that answer what the other side hands on.

    Args:
        left, right: the programs.
        tokens: alignment of their rows.
        links: values that answer each other.
        likeness: tensors that hold the same elements.
    """

    def __init__(
        self, left: Program, right: Program, tokens: Tokens | None, links: Links, likeness: Likeness
    ) -> None:
        self._tokens = tokens
        self._likeness = likeness
        self._sides = left, right
        self._by_table: tuple[dict[PortKey, list[_Known]], ...] = (
            defaultdict(list),
            defaultdict(list),
        )
        self._by_elements: tuple[dict[Hashable, _Known], ...] = ({}, {})
        theirs = right.rotations
        for number, ours in left.rotations.items():
            known = [link.right.number for link in links.of_left.get(number, ()) if link.is_whole]
            if len(known) == 1 and known[0] in theirs:
                self._learn(0, ours, theirs[known[0]])
                self._learn(1, theirs[known[0]], ours)

    def of(self, number: int, op: int, tensor: Tensor, value: Value) -> Iterator[LookedUp]:
        """What answers a tensor of a side.

        Args:
            number: 0 for the left side, 1 for the right one.
            op, tensor: the tensor.
            value: what it is.
        """
        for known in self._by_table[number].get(key_of(op, tensor), ()):
            views = self._views(number, known, known.apart.tensor)
            if views is not None:
                yield LookedUp(known.apart, *views, known.reason)
        found = self._by_elements[number]
        elements = self._likeness.elements_of(number, value, tensor) if found else None
        if elements is not None and elements in found:
            views = self._views(1 - number, found[elements], tensor)
            if views is not None:
                yield LookedUp(found[elements].table, *views[::-1], found[elements].reason)

    def _learn(self, number: int, joined: Rotation, apart: Rotation) -> None:
        """Two turns that answer each other, of which the first one may look up what it takes."""
        if joined.joined is None or apart.cosine is None or apart.sine is None:
            return
        table = joined.joined
        positions, shape = integers(table.positions), shape_of(table.table)
        if positions is None or not positions.size or not shape:
            return
        if shape[1] % 2 or positions.min() < 0 or positions.max() >= shape[0]:
            return
        half = shape[1] // 2
        key = key_of(table.op, table.table)
        for place, value, what in ((0, apart.cosine, "cosine"), (half, apart.sine, "sine")):
            use = value.uses[0]
            known = _Known(
                Use(table.op, table.table),
                tuple(int(row) for row in positions.reshape(-1)),
                positions.shape,
                Columns(place, half, shape[1]),
                use,
                f"{what} of the rotary positions, looked up",
            )
            if self._views(number, known, use.tensor) is None:
                continue
            elements = self._likeness.elements_of(1 - number, value, use.tensor)
            self._by_table[number][key].append(known)
            if elements is not None:
                self._by_elements[1 - number].setdefault(elements, known)

    def _views(
        self, number: int, known: _Known, apart: Tensor
    ) -> tuple[tuple[View, ...], tuple[View, ...]] | None:
        """Views of a table and of a tensor of the other side; None if nothing brings them together.

        Args:
            number: the side of the table.
            known: which rows of the table are meant.
            apart: a tensor of the other side.
        """
        shape = shape_of(apart)
        columns = _columns(apart, known.columns.width)
        if shape is None or columns is None:
            return None
        looked_up = (*known.lead, known.columns.total)
        if number == 0:
            found = make_views(looked_up, shape, self._tokens, known.columns, columns)
        else:
            found = make_views(shape, looked_up, self._tokens, columns, known.columns)
        if found is None:
            return None
        own, other = (found.left, found.right) if number == 0 else (found.right, found.left)
        rows: tuple[View, ...] = (Rows(0, known.rows),)
        if len(known.lead) > 1:
            rows = (*rows, Reshape(looked_up))
        return (*rows, *own), other


def _columns(tensor: Tensor, half: int) -> Columns | None:
    """The columns in which a tensor shows every angle once; None if it does not."""
    width = width_of(tensor)
    if width == half:
        return Columns(0, half, half)
    if width != 2 * half:
        return None
    order = order_of(tensor, "")
    if order == "pairs":
        return Columns(0, 1, width, (half, 2, 1))
    return Columns(0, half, width) if order in ("halves", "either") else None
