"""Sums of two values that a capture holds, such as a residual that code between modules adds.

Nothing recomputes the code of a module. But where golden's value is the sum of two others to the
last bit, mine has to be the sum of those that answer them, as far as rounding permits.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ait_llm.dumps.tensors import Tensor
from ait_llm.formats.elements import Array

_LEAST = 64  # elements, so that no sum is one by chance
_MOST = 1 << 24
# A kernel that makes a term and adds it at once sums in float32, perhaps in another order.
_FLOAT32_SUMS = 2.0**-20
_LEAST_SHARE = 0.01  # of the elements that both terms change


@dataclass(frozen=True, slots=True)
class Stray:
    """The element of a sum that is furthest from what its terms make, over what rounding permits.

    Attributes:
        place: of the element.
        value, right: what is there, and what the terms make.
        excess: error over what rounding permits.
    """

    place: tuple[int, ...]
    value: float
    right: float
    excess: float


def fits(tensor: Tensor) -> bool:
    """True for values of a size that is looked at, of a type that can be added."""
    if not tensor.has_data or not tensor.dtype.is_floating:
        return False
    return _LEAST <= int(np.prod(tensor.shape, dtype=np.float64)) <= _MOST


def is_sum(one: Tensor, other: Tensor, total: Tensor) -> bool:
    """True if a value is the rounded sum of two others in every bit, and neither is idle."""
    if not (one.shape == other.shape == total.shape and one.dtype == other.dtype == total.dtype):
        return False
    a, b, made = one.nd(), other.nd(), total.nd()
    with np.errstate(all="ignore"):
        wide = made.dtype if made.dtype.itemsize > 2 else np.float32
        right = (a.astype(wide) + b.astype(wide)).astype(made.dtype)
    if not np.array_equal(right, made):
        return False
    changes = [np.count_nonzero(right != term) for term in (a, b)]
    return bool(min(changes) >= _LEAST_SHARE * made.size)


def stray(one: Tensor, other: Tensor, total: Tensor) -> Stray | None:
    """Where a value of 16 bits is not the sum of two others by more than rounding permits.

    Each of the three may have been rounded once to its type: the terms, too, where the code adds
    before it rounds what was captured. In float32 the order of the sums that make a term leaves
    more than that, so that nothing is told.

    Returns:
        The worst element; None where all are within, or where nothing can be told.
    """
    if not one.shape == other.shape == total.shape or total.dtype.bits != 16:
        return None
    units = [_unit(each) for each in (one, other, total)]
    a, b, made = (each.nd().astype(np.float64) for each in (one, other, total))
    if not all(bool(np.isfinite(each).all()) for each in (a, b, made)):
        return None
    right = a + b
    permitted = units[0] * np.abs(a) + units[1] * np.abs(b) + max(units) * np.abs(right)
    largest = max(float(np.sqrt(np.mean(np.square(each)))) for each in (a, b, made))
    permitted += _FLOAT32_SUMS * largest + _smallest(total)
    excess: Array = np.abs(made - right) / permitted
    place = np.unravel_index(int(excess.argmax()), excess.shape)
    if excess[place] <= 1:
        return None
    return Stray(
        tuple(map(int, place)), float(made[place]), float(right[place]), float(excess[place])
    )


def _unit(tensor: Tensor) -> float:
    """Largest relative error of one rounding to the type of a tensor."""
    return float(_info(tensor).eps) / 2


def _smallest(tensor: Tensor) -> float:
    return float(_info(tensor).smallest_subnormal)


def _info(tensor: Tensor) -> ml_dtypes.finfo:
    return ml_dtypes.finfo(tensor.dtype.numpy_type)  # type: ignore[no-untyped-call]
