"""Weights that ATB operations read, and the parameters of the modules that they compute.

Only a capture with ``--weights`` has parameters. Packed projections hold those of several modules
one below the other; ``transposeB`` says on which axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.align import Pair
from ait_llm.match.programs.layout import Layouts
from ait_llm.match.programs.shapes import Columns
from ait_llm.match.views import Part, Reorder, Reshape, View
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Side, Unit
from ait_llm.program.roles import Role

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WeightLink:
    """A weight of the ATB side and the parameter that answers it.

    Attributes:
        value: what the ATB operation reads.
        name: dotted name of the parameter.
        op: the torch module.
        tensor: the parameter.
        atb_views, torch_views: what to do to each.
        confidence, reason: of the pair of operations.
    """

    value: Value
    name: str
    op: int
    tensor: Tensor
    atb_views: tuple[View, ...]
    torch_views: tuple[View, ...]
    confidence: float
    reason: str


@dataclass(frozen=True, slots=True)
class _Rows:
    """Outputs of a projection that both sides hold, as stretches of either."""

    atb: Unit
    torch: Unit
    atb_rows: Columns | None
    torch_rows: Columns | None


class WeightLinks:
    """Links the weights of paired operations."""

    def __init__(self, atb: Side, torch: Side, layouts: Layouts) -> None:
        self._atb = atb
        self._torch = torch
        self._layouts = layouts
        self.of_atb: dict[int, list[WeightLink]] = {}

    def add(self, pairs: Iterable[Pair], where: str, confidence: float) -> None:
        """Link the weights of all pairs that are certain."""
        if not self._torch.run.weights:
            return
        for pair in pairs:
            if pair.alternatives:
                continue
            for rows in self._rows(pair):
                for index, kind in self._places(rows.atb):
                    self._link(rows, index, kind, where, confidence)

    def _rows(self, pair: Pair) -> Iterator[_Rows]:
        pieces, certain = self._layouts.pieces(pair)
        if pieces:
            if certain:
                for piece in pieces:
                    yield _Rows(piece.unit, pair.torch[0], piece.atb, piece.torch)
            return
        for item in pair.shares:
            if not item.twins:
                start, width = item.atb_start, item.width
                yield _Rows(
                    item.atb,
                    item.torch,
                    _stretch(start, width, item.atb.fan_out),
                    _stretch(item.torch_start, width, item.torch.fan_out),
                )
        if not pair.shares:
            yield _Rows(pair.atb[0], pair.torch[0], None, None)

    @staticmethod
    def _places(unit: Unit) -> tuple[tuple[int, str], ...]:
        """Inputs that hold weights, and how torch calls them."""
        if unit.role is Role.EMBEDDING:
            return ((0, "weight"),)
        if unit.role in (Role.LINEAR, Role.NORM):
            return ((1, "weight"), (2, "bias"))
        return ()

    def _link(self, rows: _Rows, index: int, kind: str, where: str, confidence: float) -> None:
        value = self._atb.flow.at(rows.atb.op, "in", index)
        name = f"{self._torch.operations[rows.torch.op].name}.{kind}"
        tensor = self._torch.run.weights.get(name)
        if value is None or value.writes or tensor is None:
            return
        mine, theirs = shape_of(value.uses[0].tensor), shape_of(tensor)
        if mine is None or theirs is None:
            return
        turned = (
            len(mine) == 2 and rows.atb.role is Role.LINEAR and not self._is_out_first(rows.atb)
        )
        left = _views(mine, rows.atb_rows, turned=turned)
        right = _views(theirs, rows.torch_rows, turned=False)
        if left is None or right is None:
            return
        if left[1] != right[1]:
            left = _views(mine, rows.atb_rows, turned=not turned) if len(mine) == 2 else None
        if left is None or left[1] != right[1]:
            return
        known = self.of_atb.setdefault(value.number, [])
        if any(other.name == name and other.atb_views == left[0] for other in known):
            return
        known.append(
            WeightLink(
                value,
                name,
                rows.torch.op,
                tensor,
                left[0],
                right[0],
                confidence,
                f"{kind} of the {rows.atb.role.value} {where}",
            )
        )

    def _is_out_first(self, unit: Unit) -> bool:
        return params_of(self._atb.operations[unit.op]).get("transposeB") is not False


def _stretch(start: int, width: int, total: int) -> Columns | None:
    return None if width == total else Columns(start, width, total)


def _views(
    shape: Shape, rows: Columns | None, *, turned: bool
) -> tuple[tuple[View, ...], Shape] | None:
    """Views down to the rows that are meant, and the shape then."""
    views: list[View] = []
    if turned:
        views.append(Reorder((1, 0)))
        shape = shape[::-1]
    if rows is None or rows.is_all:
        return tuple(views), shape
    if shape[0] != rows.total:
        return None
    if not rows.parts:
        views.append(Part(0, rows.start, rows.start + rows.width))
        return tuple(views), (rows.width, *shape[1:])
    count = rows.parts[0] * rows.width * rows.parts[2]
    views += [
        Reshape((*rows.parts, prod(shape[1:]))),
        Part(1, rows.start, rows.start + rows.width),
        Reshape((count, *shape[1:])),
    ]
    return tuple(views), (count, *shape[1:])
