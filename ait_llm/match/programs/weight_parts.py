"""Which part of a saved parameter an operator of torch was given, as the ledger says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.match.views import Part, Reshape, View
from ait_llm.program.describe import shape_of

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WeightPart:
    """What an operator was given of a parameter.

    Attributes:
        name: of the parameter.
        shape, strides: of what it was given, in elements.
        offset: where that begins in the storage.
    """

    name: str
    shape: Shape
    strides: Shape
    offset: int

    def start(self, saved: Tensor) -> int:
        """Where it begins within the saved parameter."""
        return self.offset - (0 if saved.identity is None else saved.identity.offset)

    def number(self, saved: Tensor) -> int | None:
        """Which one it is of the leading axis of the parameter; None if it is not just one."""
        whole = shape_of(saved)
        if whole is None or len(whole) < 2 or self._in_memory_of(saved) is None:
            return None
        number, rest = divmod(self.start(saved), prod(whole[1:]) or 1)
        is_one = not rest and prod(self.shape) == prod(whole[1:]) and 0 <= number < whole[0]
        return number if is_one else None

    def views(self, saved: Tensor) -> tuple[View, ...] | None:
        """Views of the saved parameter down to it; None if it is no stretch of it.

        Its axes are in the order of their strides, so that a transposed look at a weight is the
        weight itself.
        """
        shape, whole = self._in_memory_of(saved), shape_of(saved)
        if shape is None or whole is None:
            return None
        return _stretch(whole, self.start(saved), shape)

    def _in_memory_of(self, saved: Tensor) -> Shape | None:
        """Its shape as it lies in memory; None if it or the parameter has gaps."""
        order = sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis])
        shape = tuple(self.shape[axis] for axis in order)
        whole, identity = shape_of(saved), saved.identity
        if not whole or 0 in (*shape, *whole):
            return None
        if tuple(self.strides[axis] for axis in order) != _strides(shape):
            return None
        is_plain = identity is None or identity.strides == _strides(whole)
        return shape if is_plain else None


def part_of(record: object) -> WeightPart | None:
    """What a record of a ledger says; None if it does not say all of it."""
    if not isinstance(record, Mapping) or not isinstance(record.get("name"), str):
        return None
    shape, strides, offset = (record.get(word) for word in ("shape", "stride", "offset"))
    if not isinstance(shape, list) or not isinstance(strides, list) or type(offset) is not int:
        return None
    if len(shape) != len(strides) or any(type(each) is not int for each in (*shape, *strides)):
        return None
    return WeightPart(record["name"], tuple(shape), tuple(strides), offset)


def _stretch(whole: Shape, start: int, shape: Shape) -> tuple[View, ...] | None:
    """Views of an array down to the elements from ``start`` on; None if they are no block of it."""
    count, rest = prod(shape), start
    views: list[View] = []
    found: Shape = ()
    for axis, size in enumerate(whole):
        inner = prod(whole[axis + 1 :])
        first, rest = divmod(rest, inner)
        length = max(count // inner, 1)
        if not 0 <= first <= size - length:
            return None
        if length != size:
            views.append(Part(axis, first, first + length))
        found = (*found, length)
        if count >= inner:
            found = (*found, *whole[axis + 1 :])
            break
    if rest or prod(found) != count:
        return None
    return (*views, *((Reshape(shape),) if found != shape else ()))


def _strides(shape: Shape) -> Shape:
    """Of a row-major array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
