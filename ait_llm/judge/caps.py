"""The number at which values are capped, ``cap * tanh(x / cap)``, told by what came of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import ml_dtypes
import numpy as np

from ait_llm.core import DType
from ait_llm.formats.elements import Array

_ROUNDINGS = 16  # of float32: kernels of tanh are that far off; of 16 bits, two steps are rounded
_SURE = 0.02  # a number that is not known as well as that is not told
_HALVINGS = 80
_SATURATED = 50.0  # of the cap: what is larger comes to it in every digit


class Cap(NamedTuple):
    """A number at which values are capped.

    Attributes:
        number: the cap.
        error: how far it may be off, relative to it.
    """

    number: float
    error: float

    def permits(self, factor: float) -> bool:
        """True for a number by which values may have been multiplied to be divided by the cap."""
        return abs(factor * self.number - 1) <= self.error


def cap_of(values: Array, capped: Array, dtype: DType) -> Cap | None:
    """The cap of some values; None if they were not capped, or so far off that nothing shows.

    The largest value tells it: the relative difference to what came of it grows as the square of
    it over the cap. All others have to fit.

    Args:
        values: before.
        capped: what came of them, element by element.
        dtype: the coarsest type that they had on the way.
    """
    before, after = (each.astype(np.float64).reshape(-1) for each in (values, capped))
    if before.size != after.size or not before.size or dtype.numpy_type is None:
        return None
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    place = int(np.abs(before).argmax())
    largest, made = abs(float(before[place])), abs(float(after[place]))
    if not 0 < made < largest or before[place] * after[place] < 0:
        return None
    cap = _solved(largest, made)
    eps = float(ml_dtypes.finfo(dtype.numpy_type).eps)  # type: ignore[no-untyped-call]
    permitted = eps * (_ROUNDINGS if dtype is DType.FLOAT32 else 2)
    # d cap / cap against d made / made: how flat the curve is there
    share = min(largest / cap, _SATURATED)
    bend = 1 - share / np.sinh(share) / np.cosh(share)
    error = permitted / float(bend) if bend > 0 else np.inf
    off = np.abs(cap * np.tanh(before / cap) - after)
    if error > _SURE or not (off <= 2 * permitted * np.abs(after) + permitted * made).all():
        return None
    return Cap(cap, 2 * error)


def _solved(value: float, made: float) -> float:
    """The cap that makes one value of another; what it makes grows with it."""
    low, high = made, made * 1e6
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if middle * np.tanh(value / middle) < made:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
