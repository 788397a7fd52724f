"""What is done to a tensor so that it can be compared with its partner.

Views are cheap descriptions; :func:`apply` carries them out on NumPy arrays, without a copy where
NumPy needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.model import Tensor
from ait_llm.formats.elements import Array
from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift, Times
from ait_llm.match.view_dims import Dims, axis_of, misfit


@dataclass(frozen=True, slots=True)
class Part:
    """Elements ``start`` to ``stop`` of one axis: a share of a fused projection."""

    axis: int
    start: int
    stop: int

    def apply(self, array: Array) -> Array:
        """The part, as a view."""
        if not 0 <= self.start <= self.stop <= array.shape[self.axis]:
            raise ValueError(f"{self} reaches beyond shape {list(array.shape)}")
        index = [slice(None)] * array.ndim
        index[self.axis] = slice(self.start, self.stop)
        return array[tuple(index)]

    def dims(self, dims: Dims) -> Dims:
        """Dims of the part."""
        at = axis_of(self, self.axis, dims)
        if not 0 <= self.start <= self.stop <= dims[at]:
            raise misfit(self, dims)
        return (*dims[:at], self.stop - self.start, *dims[at + 1 :])

    def __str__(self) -> str:
        return f"{self.start}:{self.stop} of axis {self.axis}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Elements at these places of one axis: the real tokens of a padded batch."""

    axis: int
    indices: tuple[int, ...]

    def apply(self, array: Array) -> Array:
        """The elements, copied."""
        if any(not 0 <= index < array.shape[self.axis] for index in self.indices):
            raise ValueError(f"{self} reaches beyond shape {list(array.shape)}")
        rows: Array = np.take(array, self.indices, axis=self.axis)
        return rows

    def dims(self, dims: Dims) -> Dims:
        """Dims of the rows."""
        at = axis_of(self, self.axis, dims)
        if any(not 0 <= index < dims[at] for index in self.indices):
            raise misfit(self, dims)
        return (*dims[:at], len(self.indices), *dims[at + 1 :])

    def __str__(self) -> str:
        return f"{len(self.indices)} rows of axis {self.axis}"


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in another shape: ``[batch, seq, hidden]`` as ``[tokens, hidden]``."""

    shape: tuple[int, ...]

    def apply(self, array: Array) -> Array:
        """The array in that shape; a copy only if it is not contiguous."""
        if prod(self.shape) != array.size:
            raise ValueError(f"{list(array.shape)} cannot be taken as {list(self.shape)}")
        return array.reshape(self.shape)

    def dims(self, dims: Dims) -> Dims:
        """That shape."""
        if prod(self.shape) != prod(dims):
            raise misfit(self, dims)
        return self.shape

    def __str__(self) -> str:
        return f"as {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Reorder:
    """Axes in another order: a transposed weight, heads before tokens."""

    axes: tuple[int, ...]

    def apply(self, array: Array) -> Array:
        """The array with its axes reordered, as a view."""
        reordered: Array = array.transpose(self.axes)
        return reordered

    def dims(self, dims: Dims) -> Dims:
        """The same dims in that order."""
        if sorted(self.axes) != list(range(len(dims))):
            raise misfit(self, dims)
        return tuple(dims[place] for place in self.axes)

    def __str__(self) -> str:
        return f"axes {','.join(map(str, self.axes))}"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The whole tensor several times along one axis: a smaller batch against a larger one."""

    axis: int
    times: int

    def apply(self, array: Array) -> Array:
        """The repeated array, copied."""
        times = [1] * array.ndim
        times[self.axis] = self.times
        return np.tile(array, times)

    def dims(self, dims: Dims) -> Dims:
        """Dims of the repeated array."""
        at = axis_of(self, self.axis, dims)
        return (*dims[:at], dims[at] * self.times, *dims[at + 1 :])

    def __str__(self) -> str:
        return f"{self.times} times along axis {self.axis}"


@dataclass(frozen=True, slots=True)
class Plus:
    """The sum with another tensor: two residual streams that the other side has added.

    A program that fuses the residual addition into the next norm hands on two tensors, the output
    of a block and the residual; golden has their sum. The match names one of them as its tensor
    and carries the other one here, and in its ``uses`` so that it counts as looked at::

        Match(
            golden=golden_op.source(hidden),
            mine=my_op.source(delta, (Plus(residual_record, residual),)),
            uses=(("mine", residual_record),),
            ...
        )

    It may stand anywhere among the views: ``views`` bring the second summand to the dims that the
    first one has at that place, and what follows is done to the sum.

    Attributes:
        record: how reports call the second summand; two views are equal by it and ``views``.
        tensor: where its values come from.
        views: done to it before it is added.
    """

    record: TensorRecord
    tensor: Tensor = field(compare=False, repr=False)
    views: tuple[View, ...] = ()

    def apply(self, array: Array) -> Array:
        """The sum: in float32, which holds 16-bit summands without a rounding of its own.

        Raises:
            FormatError: the second summand cannot be read.
        """
        other = apply(self.tensor.nd(), self.views)
        if other.shape != array.shape:
            raise ValueError(f"{list(other.shape)} cannot be added to {list(array.shape)}")
        return added(array, other)

    def dims(self, dims: Dims) -> Dims:
        """The same dims, which the second summand must have, too."""
        if shape_after(self.tensor.shape, self.views) != dims:
            raise misfit(self, dims)
        return dims

    def __str__(self) -> str:
        views = f" ({describe(self.views)})" if self.views else ""
        return f"plus {self.record.title}{views}"


View = (
    Part | Rows | Reshape | Reorder | Repeat | Shift | FirstUse | Hidden | Times | Dequantise | Plus
)


def added(one: Array, other: Array) -> Array:
    """The sum of two arrays of equal dims, in float32 unless one of them is wider."""
    wide = np.float64 in (one.dtype, other.dtype)
    kind = np.float64 if wide else np.float32
    result: Array = one.astype(kind)
    result += other.astype(kind)
    return result


def summands(views: Sequence[View]) -> Iterator[Tensor]:
    """The tensors that are added by views, in order."""
    for view in views:
        if isinstance(view, Plus):
            yield view.tensor
            yield from summands(view.views)


def apply(array: Array, views: Sequence[View]) -> Array:
    """Carry out views in order.

    Raises:
        ValueError: a view does not fit the array.
    """
    for view in views:
        try:
            array = view.apply(array)
        except IndexError:  # an axis that the array does not have
            raise ValueError(f"{view} does not fit shape {list(array.shape)}") from None
    return array


def shape_after(shape: Sequence[int], views: Sequence[View]) -> tuple[int, ...]:
    """Shape that :func:`apply` gives an array of ``shape``, without an array.

    Raises:
        ValueError: a view does not fit.
    """
    dims = tuple(shape)
    for view in views:
        dims = view.dims(dims)
    return dims


def describe(views: Sequence[View]) -> str:
    """Views in words, such as ``as [11, 64], 0:64 of axis 1``."""
    return ", ".join(map(str, views))
