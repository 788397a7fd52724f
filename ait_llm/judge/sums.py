"""Sums of values that a capture holds, such as a residual that code between modules adds.

Nothing recomputes the code of a module. But where golden's value is the sum of two or three others
to the last bit, mine has to be the sum of those that answer them, as far as rounding permits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.tensors import Tensor
from ait_llm.formats.elements import Array

_LEAST = 64  # elements, so that no sum is one by chance
_MOST = 1 << 24
_FEW = 256  # elements that tell at once whether a value may be a sum
# A kernel that makes a term and adds it at once sums in float32, perhaps in another order. That
# shows in values of float32 themselves, and most where the sums are long.
_FLOAT32_SUMS = 2.0**-20
_FLOAT32_ROUNDINGS = 64
_BITS = (16, 32)
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


def is_told(dtype: DType | None) -> bool:
    """True for types of which a sum can be told to be wrong."""
    return dtype is not None and dtype.is_floating and dtype.bits in _BITS


def is_sum(terms: Sequence[Array], total: Array) -> bool:
    """True if a value is the sum of others in every bit, rounded each time, and none is idle.

    Args:
        terms: in the order in which they are added.
        total: the value.
    """
    if any((each.shape, each.dtype) != (total.shape, total.dtype) for each in terms):
        return False
    few = [each.reshape(-1)[:_FEW] for each in (*terms, total)]
    made, _ = _added(few[:-1])
    if not np.array_equal(made, few[-1]):
        return False
    made, changed = _added(terms)
    return np.array_equal(made, total) and bool(changed >= _LEAST_SHARE * total.size)


def _added(terms: Sequence[Array]) -> tuple[Array, int]:
    """The sum of some values, rounded each time, and how many elements each changes at least."""
    right = terms[0]
    changes = []
    with np.errstate(all="ignore"):
        wide = right.dtype if right.dtype.itemsize > 2 else np.float32
        for term in terms[1:]:
            before = right
            right = (before.astype(wide) + term.astype(wide)).astype(term.dtype)
            changes += [np.count_nonzero(right != each) for each in (before, term)]
    return right, int(min(changes))


def stray(terms: Sequence[Tensor], total: Tensor) -> Stray | None:
    """Where a value is not the sum of others by more than rounding permits.

    Each may have been rounded once to its type: the terms, too, where the code adds before it
    rounds what was captured, and each sum on the way. In float32 the order of the sums that make a
    term leaves more than that.

    Returns:
        The worst element; None where all are within, or where nothing can be told.
    """
    if any(each.shape != total.shape for each in terms) or not is_told(total.dtype):
        return None
    units = [_unit(each) for each in (*terms, total)]
    *given, made = (each.nd().astype(np.float64) for each in (*terms, total))
    if not all(bool(np.isfinite(each).all()) for each in (*given, made)):
        return None
    right = np.add.reduce(given)
    permitted = max(units) * np.abs(right)
    for unit, term in zip(units, given, strict=False):
        # on the way of more than two, in whatever order, no sum is larger than all together
        permitted += (unit + (len(given) - 2) * max(units)) * np.abs(term)
    largest = max(float(np.sqrt(np.mean(np.square(each)))) for each in (*given, made))
    sums = max(units) if total.dtype.bits > 16 else _FLOAT32_SUMS
    permitted += sums * largest + _smallest(total)
    excess: Array = np.abs(made - right) / permitted
    worst = np.unravel_index(int(excess.argmax()), excess.shape)
    if excess[worst] <= 1:
        return None
    return Stray(
        tuple(map(int, worst)), float(made[worst]), float(right[worst]), float(excess[worst])
    )


def is_nearer(found: Stray, shape: Sequence[int], golden: Array) -> bool:
    """True if golden's value is nearer to what the terms make of an element than to the element.

    Where it is not, the code adds something that only one of the programs keeps apart, as the
    products of LoRA, and the terms are what differs.

    Args:
        found: the element.
        shape: of the value that it is of.
        golden: golden's value; one of another size tells nothing.
    """
    if golden.size != math.prod(shape):
        return False
    right = float(golden.reshape(-1)[np.ravel_multi_index(found.place, tuple(shape))])
    return abs(found.right - right) < abs(found.value - right)


def _unit(tensor: Tensor) -> float:
    """Largest relative error of one rounding to the type of a tensor, and of the sums before."""
    unit = float(_info(tensor).eps) / 2
    return unit * _FLOAT32_ROUNDINGS if tensor.dtype.bits > 16 else unit


def _smallest(tensor: Tensor) -> float:
    return float(_info(tensor).smallest_subnormal)


def _info(tensor: Tensor) -> ml_dtypes.finfo:
    return ml_dtypes.finfo(tensor.dtype.numpy_type)  # type: ignore[no-untyped-call]
