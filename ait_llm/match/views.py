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

    def __str__(self) -> str:
        return f"{self.times} times along axis {self.axis}"


@dataclass(frozen=True, slots=True)
class Shift:
    """Addresses in a repeated tensor: repetition k along one axis gets k times ``amount`` added.

    Slots of a repeated cache, and indices of rows of a repeated tensor, are such addresses.
    """

    axis: int
    times: int
    amount: int

    def apply(self, array: Array) -> Array:
        """The shifted addresses, copied."""
        length = array.shape[self.axis]
        if length % self.times:
            raise ValueError(f"{length} elements of axis {self.axis} are not {self.times} parts")
        steps = np.repeat(np.arange(self.times, dtype=array.dtype), length // self.times)
        shape = [1] * array.ndim
        shape[self.axis] = length
        shifted: Array = array + steps.reshape(shape) * array.dtype.type(self.amount)
        return shifted

    def __str__(self) -> str:
        return f"addresses moved by {self.amount} per repetition"


@dataclass(frozen=True, slots=True)
class FirstUse:
    """Addresses as the order in which they are first used: ``[7, 7, 3]`` becomes ``[0, 0, 1]``.

    Two allocators that choose other places agree in this order.
    """

    def apply(self, array: Array) -> Array:
        """The order, in the type of the addresses, copied."""
        _, first, place = np.unique(array.reshape(-1), return_index=True, return_inverse=True)
        order = np.empty(first.size, dtype=array.dtype)
        order[np.argsort(first)] = np.arange(first.size, dtype=array.dtype)
        ranked: Array = order[place.reshape(-1)].reshape(array.shape)
        return ranked

    def __str__(self) -> str:
        return "by first use"


@dataclass(frozen=True, slots=True)
class Hidden:
    """The value with which a mask hides a place, as minus infinity.

    Attributes:
        value: exactly as it reads in float64.
    """

    value: float

    def apply(self, array: Array) -> Array:
        """The mask, copied."""
        hidden = array.astype(np.float64) == self.value
        masked: Array = np.where(hidden, array.dtype.type(-np.inf), array)
        return masked

    def __str__(self) -> str:
        return f"{self.value:g} hides"


@dataclass(frozen=True, slots=True)
class Dequantise:
    """Integers as the real numbers they stand for: ``(q - offset) * scale``, in float32.

    Attributes:
        scale, offset: one value for the tensor, or one for each element of ``axis``.
        axis: where the values of ``scale`` and ``offset`` lie, counted from the end.
    """

    scale: tuple[float, ...]
    offset: tuple[float, ...] = (0.0,)
    axis: int = -1

    def apply(self, array: Array) -> Array:
        """The real numbers, copied."""
        result: Array = array.astype(np.float32)
        result -= self._spread(self.offset, array)
        result *= self._spread(self.scale, array)
        return result

    def _spread(self, values: tuple[float, ...], array: Array) -> Array:
        if len(values) != 1 and (-self.axis > array.ndim or len(values) != array.shape[self.axis]):
            raise ValueError(f"{len(values)} scales do not fit shape {list(array.shape)}")
        shape = [1] * array.ndim
        if len(values) > 1:
            shape[self.axis] = len(values)
        return np.asarray(values, dtype=np.float32).reshape(shape)

    def __str__(self) -> str:
        one = len(self.scale) == 1
        return f"dequantised with scale {self.scale[0]:g}" if one else "dequantised by channel"


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

    def __str__(self) -> str:
        views = f" ({describe(self.views)})" if self.views else ""
        return f"plus {self.record.title}{views}"


View = Part | Rows | Reshape | Reorder | Repeat | Shift | FirstUse | Hidden | Dequantise | Plus


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
        axis = getattr(view, "axis", 0)
        refusal = ValueError(f"{view} does not fit shape {list(dims)}")
        if isinstance(view, Plus):
            if shape_after(view.tensor.shape, view.views) != dims:
                raise refusal
            continue
        if not isinstance(view, Reshape | Reorder | FirstUse | Hidden) and not -len(
            dims
        ) <= axis < len(dims):
            if isinstance(view, Dequantise) and len(view.scale) == len(view.offset) == 1:
                continue
            raise refusal
        if isinstance(view, Part):
            if not 0 <= view.start <= view.stop <= dims[axis]:
                raise refusal
            dims = (*dims[:axis], view.stop - view.start, *dims[axis + 1 :])
        elif isinstance(view, Rows):
            if any(not 0 <= index < dims[axis] for index in view.indices):
                raise refusal
            dims = (*dims[:axis], len(view.indices), *dims[axis + 1 :])
        elif isinstance(view, Reshape):
            if prod(view.shape) != prod(dims):
                raise refusal
            dims = view.shape
        elif isinstance(view, Reorder):
            if sorted(view.axes) != list(range(len(dims))):
                raise refusal
            dims = tuple(dims[place] for place in view.axes)
        elif isinstance(view, Repeat):
            dims = (*dims[:axis], dims[axis] * view.times, *dims[axis + 1 :])
        elif isinstance(view, Shift):
            if dims[axis] % view.times:
                raise refusal
        elif isinstance(view, Dequantise) and (
            {len(view.scale), len(view.offset)} - {1, dims[axis]}
        ):
            raise refusal
    return dims


def describe(views: Sequence[View]) -> str:
    """Views in words, such as ``as [11, 64], 0:64 of axis 1``."""
    return ", ".join(map(str, views))
