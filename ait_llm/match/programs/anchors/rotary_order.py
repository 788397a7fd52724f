"""Two runs of one library whose rotary positions turn other elements of a head.

One turns the halves of a head against each other, the other neighbours, and the rows of the weights
of queries and keys lie in another order accordingly. Where the weights show this, all that lies in
that order on my side is compared in the order of golden: queries, keys and their cache, what both
are split from, weights and biases, cosines and sines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.rotary import order_of
from ait_llm.match.programs.weight_rows import are_equal
from ait_llm.match.views import Rows
from ait_llm.program.describe import params_of, shape_of, width_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Parameter, Program
from ait_llm.program.roles import Role

Places = NDArray[np.int64]
_HALVES = 2  # rotaryCoeff; the width of a head for neighbours
_CACHED_KEYS = 2  # the input of an operation that writes keys into a cache
REASON = "heads in the order of the other rotary layout"


@dataclass(frozen=True, slots=True)
class _Made:
    """Columns of a projection.

    Attributes:
        weight, bias: of the projection.
        whole: what it gives.
        start: of the columns.
    """

    weight: Parameter
    bias: Parameter | None
    whole: Value
    start: int


class RotaryOrder:
    """Which elements of my tensors stand where golden's stand.

    Args:
        left: the golden program.
        right: mine.
        places: operations that answer each other, right by left.
    """

    def __init__(self, left: Program, right: Program, places: Mapping[int, int]) -> None:
        self._left, self._right = left, right
        self._turned: dict[int, tuple[int, Places]] = {}  # axis from behind, and places, by value
        for op, other in places.items():
            if left.roles[op] is right.roles[other] is Role.ROTARY:
                self._add(op, other)

    def view(self, op: int, tensor: Tensor) -> Rows | None:
        """What brings a tensor of mine into the order of golden; None if it is in it."""
        value = self._right.value(op, tensor) if self._turned else None
        shape = None if value is None else shape_of(tensor)
        if value is None or not shape or value.number not in self._turned:
            return None
        axis, places = self._turned[value.number]
        axis = len(shape) - axis
        places = places[: shape[axis]]  # of one head, where heads are an axis of their own
        if axis < 0 or not np.array_equal(np.sort(places), np.arange(shape[axis])):
            return None
        return Rows(axis, tuple(places.tolist()))

    def _add(self, op: int, other: int) -> None:
        ours, theirs = self._left.operations[op], self._right.operations[other]
        if min(map(len, (ours.inputs, theirs.inputs))) < 4:
            return
        dim = width_of(theirs.inputs[2])
        kinds = params_of(ours).get("rotaryCoeff"), params_of(theirs).get("rotaryCoeff")
        if dim % 2 or dim != width_of(ours.inputs[2]) or {*kinds} != {_HALVES, dim}:
            return
        shape = (dim // 2, 2) if kinds[1] == dim else (2, dim // 2)
        head = np.arange(dim).reshape(shape).T.reshape(-1)
        made = [
            (_made(self._left, op, ours.inputs[n]), _made(self._right, other, theirs.inputs[n]))
            for n in (0, 1)
        ]
        for (mine, its), tensor in zip(made, theirs.inputs, strict=False):
            if mine is None or its is None or not _is_turned(mine, its, width_of(tensor), head):
                return
        for (_, its), read, written in zip(made, theirs.inputs, theirs.outputs, strict=False):
            assert its is not None
            places = _in_heads(head, width_of(read))
            for tensor in (read, written):
                self._turn(self._right.value(other, tensor), 1, places)
            self._turn_columns(its, places)
        for table, same in zip(theirs.inputs[2:4], ours.inputs[2:4], strict=True):
            if order_of(table, "pairs") != order_of(same, "pairs"):
                self._turn_table(self._right.value(other, table), head)
        self._turn_cache(self._right.value(other, theirs.outputs[1]), head)

    def _turn(self, value: Value | None, axis: int, places: Places) -> None:
        if value is not None:
            self._turned.setdefault(value.number, (axis, places))

    def _turn_columns(self, made: _Made, places: Places) -> None:
        """Some columns of a projection, and the rows of its weight and bias that make them."""
        axis = 1 if made.weight.transposed else 2
        weight, bias = made.weight.value, None if made.bias is None else made.bias.value
        for value, place in ((made.whole, 1), (weight, axis), (bias, 1)):
            if value is None:
                continue
            known = self._turned.get(value.number)
            shape = shape_of(value.uses[0].tensor)
            if not shape:
                continue
            every = np.arange(shape[-place]) if known is None else known[1].copy()
            every[made.start : made.start + len(places)] = made.start + places
            self._turned[value.number] = place, every

    def _turn_table(self, value: Value | None, head: Places) -> None:
        """A table of cosines or sines, and what its rows were taken of."""
        self._turn(value, 1, head)
        for use in value.writes if value is not None else ():
            if self._right.roles[use.op] is Role.EMBEDDING:
                table = self._right.operations[use.op].inputs[0]
                self._turn(self._right.value(use.op, table), 1, head)

    def _turn_cache(self, keys: Value | None, head: Places) -> None:
        """The cache that keys are written into, before and after."""
        for use in keys.reads if keys is not None else ():
            operation = self._right.operations[use.op]
            if self._right.roles[use.op] is Role.CACHE:
                caches = [t for t in operation.inputs if t.index == _CACHED_KEYS]
                for tensor in (*caches, *operation.outputs[:1]):
                    self._turn(self._right.value(use.op, tensor), 1, head)


def _in_heads(head: Places, width: int) -> Places:
    starts = np.arange(0, width, len(head))
    places: Places = (starts[:, None] + head).reshape(-1)
    return places


def _made(side: Program, op: int, tensor: Tensor) -> _Made | None:
    """The columns of a projection that a tensor is; None if it is something else."""
    value, start = side.value(op, tensor), 0
    for writer in _writers(side, value):
        operation = side.operations[writer]
        if side.roles[writer] is Role.SPLIT and operation.inputs:
            for piece in operation.outputs:
                if side.value(writer, piece) is value:
                    break
                start += width_of(piece)
            value = side.value(writer, operation.inputs[0])
            return replace(found, start=start) if (found := _projected(side, value)) else None
    return _projected(side, value)


def _projected(side: Program, value: Value | None) -> _Made | None:
    for writer in _writers(side, value):
        unit = side.unit_of.get(writer)
        weight = None if unit is None else side.parameter(unit, "weight")
        if unit is not None and unit.role is Role.LINEAR and weight is not None and value:
            return _Made(weight, side.parameter(unit, "bias"), value, 0)
    return None


def _writers(side: Program, value: Value | None) -> Iterator[int]:
    for use in value.writes if value is not None else ():
        if not side.operations[use.op].is_graph:
            yield use.op


def _is_turned(left: _Made, right: _Made, width: int, head: Places) -> bool:
    """True if rows of my weight are those of golden's in the other order."""
    if width % len(head):
        return False
    rows = np.arange(width)
    ours, theirs = left.start + rows, right.start + _in_heads(head, width)
    return are_equal(left.weight, right.weight, ours, theirs)
