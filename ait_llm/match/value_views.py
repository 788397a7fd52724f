"""Views that change numbers of a tensor and not its dims: addresses, masks, quantised numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.match.view_dims import Dims, axis_of, misfit


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

    def dims(self, dims: Dims) -> Dims:
        """The same dims."""
        if dims[axis_of(self, self.axis, dims)] % self.times:
            raise misfit(self, dims)
        return dims

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

    def dims(self, dims: Dims) -> Dims:
        """The same dims."""
        return dims

    def __str__(self) -> str:
        return "by first use"


@dataclass(frozen=True, slots=True)
class Hidden:
    """The value with which a mask hides a place, as minus infinity.

    Attributes:
        value: exactly as it reads in float64.
        below: whatever is lower hides, too: scores that such a mask was added to.
        above: in place of that, the value is the largest of its type, as plus infinity.
    """

    value: float
    below: bool = False
    above: bool = False

    def apply(self, array: Array) -> Array:
        """The mask, copied."""
        exact = array.astype(np.float64)
        if self.above:
            unlimited: Array = np.where(exact >= self.value, array.dtype.type(np.inf), array)
            return unlimited
        hidden = exact <= self.value if self.below else exact == self.value
        masked: Array = np.where(hidden, array.dtype.type(-np.inf), array)
        return masked

    def dims(self, dims: Dims) -> Dims:
        """The same dims."""
        return dims

    def __str__(self) -> str:
        return f"{self.value:g} hides"


@dataclass(frozen=True, slots=True)
class Times:
    """A multiple, in float32: what the other side multiplies by a number as it computes it."""

    factor: float

    def apply(self, array: Array) -> Array:
        """The multiple, copied."""
        wide = array.astype(np.promote_types(array.dtype, np.float32), copy=False)
        multiple: Array = wide * wide.dtype.type(self.factor)
        return multiple

    def dims(self, dims: Dims) -> Dims:
        """The same dims."""
        return dims

    def __str__(self) -> str:
        return f"times {self.factor:g}"


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

    def dims(self, dims: Dims) -> Dims:
        """The same dims, for which there must be one scale or enough of them."""
        counts = {len(self.scale), len(self.offset)} - {1}
        if counts and counts != {dims[axis_of(self, self.axis, dims)]}:
            raise misfit(self, dims)
        return dims

    def __str__(self) -> str:
        one = len(self.scale) == 1
        return f"dequantised with scale {self.scale[0]:g}" if one else "dequantised by channel"
