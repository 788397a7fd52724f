"""The residual of one output, and how well a hypothesis explains it.

A hypothesis predicts every element of the faulty output. Two numbers say how good it is:

- the *share* of the residual's energy that it explains,
  ``1 - |mine - predicted|^2 / |mine - right|^2``;
- the *bits* that describe what it leaves. An element that is off by d where rounding has the
  standard deviation s takes ``log2(1 + d^2 / s^2) / 2`` bits, which is about the number of its
  wrong digits. Parameters of the hypothesis cost bits too, so that one with many of them has to
  explain more (the principle of minimum description length, Rissanen, Automatica 14, 1978).

The energy is dominated by the largest errors, the bits count every element; a good hypothesis has
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ait_llm.core import DType
from ait_llm.diagnosis.kinds import Kind

Array = NDArray[np.float64]

# Stored bits of the significand, and the exponent of the smallest normal number.
_PRECISION = {DType.FLOAT16: (10, -14), DType.BFLOAT16: (7, -126), DType.FLOAT32: (23, -126)}
_STORAGE: dict[DType, Any] = {  # NumPy has no type of all their scalars
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT32: np.float32,
}
_LARGEST = {DType.FLOAT16: 65504.0, DType.BFLOAT16: (2 - 2.0**-7) * 2.0**127}
_LARGEST[DType.FLOAT32] = (2 - 2.0**-23) * 2.0**127
_FLOAT32_UNIT = 2.0**-24
_ROUNDING = 0.4  # root mean square of a rounding, of the largest, with significands spread evenly
_SHORTEST_SUM = 256  # terms; exponentials and roots have errors of their own


def round_to(values: Array, dtype: DType) -> Array:
    """Values as a type holds them, rounded to nearest; whole numbers where it is no float."""
    if dtype in _STORAGE:
        with np.errstate(over="ignore"):
            rounded: Array = values.astype(_STORAGE[dtype]).astype(np.float64)
        return rounded
    return values if dtype.is_floating else np.rint(values)


def spacing(values: Array, dtype: DType) -> Array:
    """Distance of neighbouring numbers of a type at some values; 1 for types that are no floats."""
    if not dtype.is_floating:
        return np.ones_like(values)
    digits, lowest = _PRECISION.get(dtype, (52, -1022))
    _, exponent = np.frexp(values)  # of a significand in [0.5, 1)
    found: Array = np.ldexp(1.0, np.maximum(exponent - 1, lowest) - digits)
    return found


def largest(dtype: DType) -> float:
    """The largest finite number of a type."""
    if dtype in _LARGEST:
        return _LARGEST[dtype]
    if dtype is DType.INT8:
        return 127.0
    return float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One way in which an output may have come about.

    Attributes:
        kind: of bug.
        values: what it predicts, of the output's shape, rounded or not; NaN where it says nothing.
        text: what is special about it, a clause.
        parameters: what was fitted, by name.
        cost: how many numbers had to be found to say so.
    """

    kind: Kind
    values: Array
    text: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    cost: float = 1.0


@dataclass(frozen=True, eq=False)
class Residual:
    """One output of mine against the right one; finite float64 arrays of one shape.

    Attributes:
        mine: the output under test.
        exact: the right one, unrounded.
        dtype: of the output.
        terms: of the operator's longest sum.
        unit: of roundings to 16 bits on the way, relative; 0 where a kernel must not do any.
    """

    mine: Array
    exact: Array
    dtype: DType
    terms: int = 1
    unit: float = 0.0

    @cached_property
    def right(self) -> Array:
        """The right output, rounded to its type."""
        return round_to(self.exact, self.dtype)

    @cached_property
    def gaps(self) -> Array:
        """Spacing of the output's type at the right values."""
        return spacing(self.right, self.dtype)

    @cached_property
    def noise(self) -> Array:
        """Standard deviation of correct kernels: of rounding, of float32 sums, on the way."""
        typical = _typical(self.exact)
        sums = _FLOAT32_UNIT * max(self.terms, _SHORTEST_SUM) ** 0.5
        found: Array = np.sqrt(
            self.gaps**2 / 12 + (sums * typical) ** 2 + (_ROUNDING * self.unit * typical) ** 2
        )
        return found

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Elements that rounding does not explain."""
        limit = self.gaps + 4 * self.noise
        if not self.dtype.is_floating:  # quantised ones may be one off, where they are at a tie
            limit = np.full_like(self.gaps, 1.0 if self.dtype is DType.INT8 else 0.5)
        found: NDArray[np.bool_] = np.abs(self.mine - self.right) > limit
        return found

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.mine.size

    def bits(self, values: Array) -> float:
        """Bits that describe what a prediction leaves.

        Where it says nothing (NaN), it is taken to do as well as elsewhere.
        """
        given = ~np.isnan(values)
        left = self._bits(self._left(values)[given], given)
        if given.all():
            return left
        own = self._bits((self.mine - self.right)[given], given)
        return self.bits_of_nothing * (left / own if own else 1.0)

    def _bits(self, off: Array, given: NDArray[np.bool_]) -> float:
        return float(np.log2(1 + (off / self.noise[given]) ** 2).sum()) / 2

    def share(self, values: Array) -> float:
        """Share of the energy that a prediction explains; negative where it is worse than none."""
        given = ~np.isnan(values)
        energy = float(((self.mine - self.right)[given] ** 2).sum())
        left = float((self._left(values) ** 2).sum())
        return 1 - left / energy if energy else 0.0

    def leaves_rounding(self, values: Array) -> bool:
        """True if a prediction leaves no more than correct kernels differ by."""
        off = self._left(values)
        given = ~np.isnan(values)
        if bool((off > self.gaps + 6 * self.noise)[given].any()):
            return False
        return float((off[given] ** 2).sum()) <= 2 * float((self.noise[given] ** 2).sum())

    @cached_property
    def bits_of_nothing(self) -> float:
        """Bits of the residual itself."""
        return self.bits(self.right)

    @property
    def is_rounding(self) -> bool:
        """True if a correct kernel may have made this output.

        One that rounds to nearest differs from the rounded exact result where that is nearly half
        way between two numbers, and then by one spacing; few elements are.
        """
        off = np.abs(self.mine - self.exact)
        own = self.noise**2 - self.gaps**2 / 12  # without the last rounding
        if bool((off > self.gaps / 2 + 6 * np.sqrt(own)).any()):
            return False
        return float((off**2).sum()) <= 2 * float((self.noise**2).sum())

    def _left(self, values: Array) -> Array:
        return np.nan_to_num(np.abs(self.mine - round_to(values, self.dtype)), posinf=1e300)


def _typical(values: Array) -> Array:
    """Root mean square along the last dimension, in the shape of the values."""
    if values.ndim == 0 or values.size == 0:
        return np.abs(values)
    mean = np.sqrt((values**2).mean(-1, keepdims=True))
    found: Array = np.maximum(np.broadcast_to(mean, values.shape), np.abs(values))
    return found
