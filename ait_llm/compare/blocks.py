"""Tensors after their views, cut into blocks that are taken one at a time.

Views that only look at memory differently are carried out at once. Repetition, a choice of rows
and dequantisation make new elements: they are carried out within each block, because the whole
result may be many times larger than what is stored. So is the sum of two tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.match.value_views import Dequantise
from ait_llm.match.views import Part, Plus, Reorder, Repeat, Reshape, Rows, View, added, apply

# Elements compared at a time. Large enough that a call costs nothing beside its work, small enough
# that copies of a block, where they are needed, stay in the caches.
BLOCK_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor.

    Attributes:
        start, stop: elements, counted in row-major order.
        index: fixed positions on the leading axes.
        rows: range on the axis after them; the axes behind it are whole.
    """

    start: int
    stop: int
    index: tuple[int, ...]
    rows: tuple[int, int]


def blocks_of(shape: tuple[int, ...], *, flat: bool) -> Iterator[Block]:
    """Cut dims into blocks of at most :data:`BLOCK_ELEMENTS`, in row-major order.

    Args:
        shape: the dims.
        flat: cut anywhere; else only where a block is one part of an array of these dims.
    """
    elements = prod(shape)
    if flat or len(shape) < 2:
        for start in range(0, elements, BLOCK_ELEMENTS):
            stop = min(start + BLOCK_ELEMENTS, elements)
            yield Block(start, stop, (), (start, stop))
        return
    if not elements:
        return
    axis = len(shape) - 1
    while axis and prod(shape[axis:]) <= BLOCK_ELEMENTS:
        axis -= 1
    row = prod(shape[axis + 1 :])
    step = max(1, BLOCK_ELEMENTS // row)
    for number, index in enumerate(np.ndindex(shape[:axis])):
        begin = number * shape[axis] * row
        for first in range(0, shape[axis], step):
            last = min(first + step, shape[axis])
            yield Block(begin + first * row, begin + last * row, index, (first, last))


class Elements(Protocol):
    """A tensor after its views.

    Attributes:
        shape: its dims.
        is_flat: True if ``take`` accepts any range of elements; else only blocks of ``shape``.
        looks_at_memory: True if ``take`` returns memory of the tensor instead of a copy.
    """

    shape: tuple[int, ...]
    is_flat: bool
    looks_at_memory: bool

    def take(self, block: Block) -> Array:
        """The elements of a block, 1-D and contiguous."""
        ...


class Contiguous:
    """Elements that lie in row-major order.

    Attributes:
        flat: all of them, 1-D.
    """

    is_flat = looks_at_memory = True

    def __init__(self, array: Array) -> None:
        self.shape: tuple[int, ...] = array.shape
        self.flat = array.reshape(-1)

    def take(self, block: Block) -> Array:
        """A view."""
        return self.flat[block.start : block.stop]


class Strided:
    """Elements in another order: a transposed weight, a share of a fused projection."""

    is_flat = looks_at_memory = False

    def __init__(self, array: Array) -> None:
        self.shape: tuple[int, ...] = array.shape
        self._array = array

    def take(self, block: Block) -> Array:
        """A copy."""
        first, last = block.rows
        return np.ascontiguousarray(self._array[block.index][first:last]).reshape(-1)


class Chosen:
    """Rows of the first axis, in any order."""

    is_flat = looks_at_memory = False

    def __init__(self, array: Array, view: Rows) -> None:
        self._rows = np.asarray(view.indices, np.intp)
        if self._rows.size and not 0 <= self._rows.min() <= self._rows.max() < len(array):
            raise ValueError(f"{view} reaches beyond shape {list(array.shape)}")
        self.shape: tuple[int, ...] = (self._rows.size, *array.shape[1:])
        self._array = array

    def take(self, block: Block) -> Array:
        """A copy."""
        first, last = block.rows
        if not block.index:
            part = self._array[self._rows[first:last]]
        else:
            part = self._array[self._rows[block.index[0]]][block.index[1:]][first:last]
        return np.ascontiguousarray(part).reshape(-1)


class Repeated:
    """The whole tensor several times along its first axis, then perhaps in other dims."""

    is_flat = True
    looks_at_memory = False

    def __init__(self, array: Array, view: Repeat, later: Sequence[Reshape]) -> None:
        shape: tuple[int, ...] = (array.shape[0] * view.times, *array.shape[1:])
        for each in later:
            if prod(each.shape) != prod(shape):
                raise ValueError(f"{list(shape)} cannot be taken as {list(each.shape)}")
            shape = each.shape
        self.shape = shape
        self._flat = array.reshape(-1)

    def take(self, block: Block) -> Array:
        """A view, or a copy where the block crosses from one repetition to the next."""
        period = self._flat.size
        start, count = block.start % period, block.stop - block.start
        if start + count <= period:
            return self._flat[start : start + count]
        return np.take(self._flat, np.arange(start, start + count), mode="wrap")


class Dequantised:
    """Integers as the real numbers they stand for."""

    looks_at_memory = False

    def __init__(self, elements: Elements, view: Dequantise) -> None:
        self._elements = elements
        self._view = view
        self.shape: tuple[int, ...] = elements.shape
        lengths = {len(view.scale), len(view.offset)} - {1}
        self._axis = len(self.shape) + view.axis
        if lengths and (self._axis < 0 or lengths != {self.shape[self._axis]}):
            raise ValueError(f"{max(lengths)} scales do not fit shape {list(self.shape)}")
        self.is_flat = elements.is_flat and not lengths

    def take(self, block: Block) -> Array:
        """A copy in float32."""
        part: Array = self._elements.take(block).astype(np.float32)
        part = part.reshape(-1 if self.is_flat else self._dims(block))
        part -= self._spread(self._view.offset, block)
        part *= self._spread(self._view.scale, block)
        return part.reshape(-1)

    def _dims(self, block: Block) -> tuple[int, ...]:
        first, last = block.rows
        return (last - first, *self.shape[len(block.index) + 1 :])

    def _spread(self, values: tuple[float, ...], block: Block) -> Array:
        numbers: Array = np.asarray(values, dtype=np.float32)
        if numbers.size == 1:
            return numbers
        leading = len(block.index)
        if self._axis < leading:
            place = block.index[self._axis]
            return numbers[place : place + 1]
        if self._axis == leading:
            numbers = numbers[slice(*block.rows)]
        behind = len(self.shape) - self._axis - 1
        return numbers.reshape(-1, *(1,) * behind)


class Summed:
    """The sum of two tensors that have the same dims after their views."""

    looks_at_memory = False

    def __init__(self, one: Elements, other: Elements) -> None:
        if one.shape != other.shape:
            raise ValueError(f"{list(other.shape)} cannot be added to {list(one.shape)}")
        self.shape: tuple[int, ...] = one.shape
        self.is_flat = one.is_flat and other.is_flat
        self._summands = one, other

    def take(self, block: Block) -> Array:
        """A copy, see :func:`ait_llm.match.views.added`."""
        one, other = self._summands
        return added(one.take(block), other.take(block))


# What is the same whether it is done to a sum or to each summand.
_MOVES = (Part, Rows, Reshape, Reorder, Repeat)


def elements_of(array: Array, views: Sequence[View]) -> Elements:
    """An array after its views.

    Raises:
        ValueError: a view does not fit the array.
        FormatError: a second summand cannot be read.
    """
    for place, view in enumerate(views):
        later = views[place + 1 :]
        if isinstance(view, Plus) and all(isinstance(each, (*_MOVES, Plus)) for each in later):
            return _sum_of(array, view, views[:place], later)
    last = views[-1] if views else None
    if isinstance(last, Dequantise):
        return Dequantised(_before_dequantising(array, views[:-1]), last)
    return _before_dequantising(array, views)


def _sum_of(array: Array, plus: Plus, before: Sequence[View], later: Sequence[View]) -> Elements:
    moves = [each for each in later if not isinstance(each, Plus)]
    one = elements_of(array, (*before, *later))
    return Summed(one, elements_of(plus.tensor.nd(), (*plus.views, *moves)))


def _before_dequantising(array: Array, views: Sequence[View]) -> Elements:
    last = views[-1] if views else None
    if isinstance(last, Rows) and last.axis == 0:
        return Chosen(apply(array, views[:-1]), last)
    for place, view in enumerate(views):
        later = [each for each in views[place + 1 :] if isinstance(each, Reshape)]
        if isinstance(view, Repeat) and view.axis == 0 and len(later) == len(views) - place - 1:
            before = apply(array, views[:place])
            if before.flags.c_contiguous and before.size:
                return Repeated(before, view, later)
    whole = apply(array, views)
    return Contiguous(whole) if whole.flags.c_contiguous else Strided(whole)
