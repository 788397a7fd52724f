"""Weights of paired operations: inputs of ATB operations, or parameters of modules.

Only a capture with ``--weights`` has parameters. Packed projections hold those of several modules
one below the other; definitions say on which axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ait_llm.match.programs.align import Pair
from ait_llm.match.programs.columns import Columns, turned
from ait_llm.match.programs.layout import Layouts
from ait_llm.match.programs.shards import computes_several, portion_of
from ait_llm.match.programs.weight_rows import Indices, are_equal, is_one_more
from ait_llm.match.views import Part, Reorder, Reshape, View, apply
from ait_llm.program.adapted import is_whole
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Parameter, Program, Unit
from ait_llm.program.roles import Role

Shape = tuple[int, ...]
_Viewed = tuple[tuple[View, ...], Shape]


@dataclass(frozen=True, slots=True)
class WeightLink:
    """A weight of the left side and the one of the right side that answers it.

    Attributes:
        left, right: the weights.
        left_views, right_views: what to do to each.
        confidence, reason: of the pair of operations.
    """

    left: Parameter
    right: Parameter
    left_views: tuple[View, ...]
    right_views: tuple[View, ...]
    confidence: float
    reason: str


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Outputs of a projection that both sides hold, as stretches of either; None for all."""

    left: Unit
    right: Unit
    left_rows: Columns | None
    right_rows: Columns | None


class WeightLinks:
    """Links the weights of paired operations.

    Attributes:
        of_value: links of left values, by their number.
        of_right_value: links of right values with parameters of left modules.
        of_parameter: links of parameters of modules.
        without: names of modules whose weights are not compared.
    """

    def __init__(self, left: Program, right: Program, layouts: Layouts) -> None:
        self._left = left
        self._right = right
        self._portion = portion_of(left.run, right.run)
        self._layouts = layouts
        self.of_value: dict[int, list[WeightLink]] = {}
        self.of_right_value: dict[int, list[WeightLink]] = {}
        self.of_parameter: list[WeightLink] = []
        self.without: frozenset[str] = frozenset()
        self._known: set[tuple[int, str, int, str, tuple[View, ...]]] = set()
        self._names = {operation.name for operation in left.operations}
        self._homes: set[tuple[str, ...]] = set()

    def add(self, pairs: Iterable[Pair], where: str, confidence: float) -> None:
        """Link the weights of all pairs that are certain."""
        for pair in pairs:
            if pair.alternatives:
                continue
            for rows in self.rows(pair):
                for kind in ("weight", "bias"):
                    mine = self._left.parameter(rows.left, kind)
                    other = self._right.parameter(rows.right, kind)
                    if mine is not None and other is not None:
                        if rows.left.role is Role.NORM and is_one_more(mine, other):
                            continue  # not the same value, though it does the same
                        reason = f"{kind} of the {rows.left.role.value} {where}"
                        self.link(rows, mine, other, reason, confidence)

    def add_same(self, left: int, right: int, confidence: float) -> None:
        """Link the parameters of two modules of one class by their names."""
        theirs = {each.name: each for each in self._right.parameters_of(right)}
        for mine in self._left.parameters_of(left):
            other = theirs.get(mine.name)
            shapes = shape_of(mine.tensor), None if other is None else shape_of(other.tensor)
            if other is None or shapes[0] is None or shapes[1] is None:
                continue
            views = self._share(left, shapes[0], shapes[1])
            if views is not None:
                reason = "parameter of the same module"
                self._keep(WeightLink(mine, other, views[0], views[1], confidence, reason))

    def _share(self, op: int, left: Shape, right: Shape) -> tuple[tuple[View, ...], ...] | None:
        """Views that leave what both sides have of a parameter; none if they cannot be told."""
        if left == right:
            return (), ()
        axis = None if self._portion is None else self._portion.axis(left, right)
        if axis is None or self._portion is None:
            return None
        if computes_several(self._left.operations[op].name):
            return None
        return self._portion.cut(left, right, axis)

    def rows(self, pair: Pair) -> Iterator[SharedRows]:
        """Outputs that both sides hold, of a pair of projections or of others."""
        pieces, certain = self._layouts.pieces(pair)
        if pieces:
            if certain:
                for piece in pieces:
                    yield SharedRows(piece.left_unit, piece.right_unit, piece.left, piece.right)
            return
        for item in pair.shares:
            if not item.twins:
                start, width = item.left_start, item.width
                yield SharedRows(
                    item.left,
                    item.right,
                    _stretch(start, width, item.left.fan_out),
                    _stretch(item.right_start, width, item.right.fan_out),
                )
        if not pair.shares:
            yield SharedRows(pair.left[0], pair.right[0], None, None)

    def link(
        self, rows: SharedRows, mine: Parameter, other: Parameter, reason: str, confidence: float
    ) -> None:
        """Link weights that make some outputs, if they can be brought to one shape.

        Args:
            rows: the outputs.
            mine, other: of the left and of the right side.
            reason: which weights they are.
            confidence: that they answer each other.
        """
        shapes = shape_of(mine.tensor), shape_of(other.tensor)
        if shapes[0] is None or shapes[1] is None:
            return
        mine = _turned_round(mine, other, shapes[0])
        left = _views(shapes[0], rows.left_rows, transposed=mine.transposed)
        right = _views(shapes[1], rows.right_rows, transposed=other.transposed)
        if left is None or right is None:
            return
        # of a product over a share of the inputs, a rank has these columns of the weight
        cut = self._share(rows.left.op, left[1], right[1])
        if cut:
            left, right = ((*left[0], *cut[0]), right[1]), ((*right[0], *cut[1]), right[1])
        if left[1] != right[1] and len(shapes[0]) == 2:
            left = _views(shapes[0], rows.left_rows, transposed=not mine.transposed)
        if left is None or left[1] != right[1]:
            return
        stored = dict.fromkeys(filter(None, (mine.tensor.stored_as, other.tensor.stored_as)))
        how = f", of {' and '.join(stored)}" if stored else ""
        self._keep(WeightLink(mine, other, left[0], right[0], confidence, f"{reason}{how}"))

    def _keep(self, link: WeightLink) -> None:
        if _is_base(self._left, link.left) != _is_base(self._right, link.right):
            return
        if not self.without.isdisjoint(self._modules_of(link)):
            return
        homes = _home(self._left, link.left), _home(self._right, link.right)
        if all(homes):  # tied on both sides: compared once
            if homes[0].rpartition(".")[0] in self._names or homes in self._homes:
                return
            self._homes.add(homes)
        key = (link.left.op, link.left.name, link.right.op, link.right.name, link.left_views)
        if key in self._known:
            return
        self._known.add(key)
        if link.left.value is not None:
            self.of_value.setdefault(link.left.value.number, []).append(link)
        elif link.right.value is not None:
            self.of_right_value.setdefault(link.right.value.number, []).append(link)
        else:
            self.of_parameter.append(link)

    def _modules_of(self, link: WeightLink) -> Iterator[str]:
        """The modules that have two weights, also where an operator within them shows them."""
        for side, weight in ((self._left, link.left), (self._right, link.right)):
            yield side.operations[weight.op].name.partition(".aten.")[0]


def is_weight(side: Program, value: Value) -> bool:
    """True if an operation takes a value in the place of its parameters."""
    for use in value.reads:
        role = side.roles[use.op]
        index = use.tensor.index
        if role in (Role.LINEAR, Role.NORM, Role.EXPERT) and index > 0:
            return True
        if role is Role.EMBEDDING and index == 0:
            return True
        if role is Role.ADD and len(shape_of(use.tensor) or ()) == 1:
            return True
    return False


def _home(side: Program, weight: Parameter) -> str:
    """The name that a parameter was saved by as that of another module; empty if it was not."""
    name = f"{side.operations[weight.op].name}.{weight.name}"
    return weight.tensor.stem if weight.value is None and name not in side.run.weights else ""


def _is_base(side: Program, weight: Parameter) -> bool:
    """True for a weight that is not yet what its module multiplies by: it lacks its adapter."""
    if not side.adapters or side.operations[weight.op].name not in side.adapters:
        return False
    return weight.name == "weight" and not is_whole(weight.tensor)


def _turned_round(mine: Parameter, other: Parameter, shape: Shape) -> Parameter:
    """A square weight the other way round, if only so it is the other one."""
    if len(shape) != 2 or shape[0] != shape[1] or are_equal(mine, other):
        return mine
    turned_round = replace(mine, transposed=not mine.transposed)
    return turned_round if are_equal(turned_round, other) else mine


def _stretch(start: int, width: int, total: int) -> Columns | None:
    return None if width == total else Columns(start, width, total)


def row_numbers(rows: Columns | None) -> Indices | None:
    """The rows of a weight that make some columns, in the order of the columns; None for all."""
    if rows is None or rows.is_all:
        return None
    found = _views((rows.total,), rows, transposed=False)
    return None if found is None else apply(np.arange(rows.total), found[0])


def _views(shape: Shape, rows: Columns | None, *, transposed: bool) -> _Viewed | None:
    """Views down to the rows that are meant, and the shape then."""
    views: list[View] = []
    if transposed and len(shape) == 2:
        views.append(Reorder((1, 0)))
        shape = shape[::-1]
    if rows is None or rows.is_all:
        return tuple(views), shape
    if not shape or shape[0] != rows.total:
        return None
    if not rows.parts:
        if rows.width != rows.total:
            views.append(Part(0, rows.start, rows.start + rows.width))
        views += turned(rows, (), rows.width, shape[1:])
        return tuple(views), (rows.width, *shape[1:])
    count = rows.parts[0] * rows.width * rows.parts[2]
    views += [
        Reshape((*rows.parts, prod(shape[1:]))),
        Part(1, rows.start, rows.start + rows.width),
        Reshape((count, *shape[1:])),
    ]
    views += turned(rows, (), count, shape[1:])
    return tuple(views), (count, *shape[1:])
