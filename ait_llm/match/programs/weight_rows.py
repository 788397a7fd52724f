"""Which rows of some weights are which rows of others, whatever their order.

Row i of a weight makes column i of the result, so this is the map of the columns of activations,
and no fault of the run can change it. A few elements of each row are read, at the same places on
both sides, rounded to the coarser of the two types and hashed: a joined projection has the rows of
its parts, another rotary layout has the same rows in another order. Where weights are not equal
(merged adapters, dequantised or rounded twice), rows are held against each other by the cosine of
these elements instead. Rows that are alike within a side prove nothing, nor do constant ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import FORMAT_ND, DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.programs.remembered import remembered
from ait_llm.match.programs.some_elements import some_elements
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.program import Parameter

Indices = NDArray[np.int64]

MOST_ROWS = 1 << 17
"""Rows of one group of projections that are looked at."""
_STRETCHES, _LENGTH = 8, 16  # elements of a row that are read: neighbours, for few pages
_SOME = 64  # rows that tell whether two weights are equal
_HASHED = 512  # rows at a time, so that copies of them stay in the caches
_NEAR_ROWS = 1 << 13  # rows of a side that are compared one by one with those of the other
_ALIKE, _APART = 0.9, 0.6  # cosines of equal rows, and of the next best
_FINENESS = {
    DType.FLOAT8_E5M2: 2,
    DType.FLOAT8_E4M3FN: 3,
    DType.BFLOAT16: 7,
    DType.FLOAT16: 10,
    DType.FLOAT32: 23,
    DType.FLOAT64: 52,
}  # bits of the mantissa


@remembered
def partners(
    left: Sequence[Parameter], right: Sequence[Parameter], *, near: bool
) -> Indices | None:
    """For each row of the right weights, one below the other, the row of the left ones.

    Args:
        left, right: weights of projections of one value.
        near: also look for rows that are not equal, if most have no equal one.

    Returns:
        -1 where no row, or more than one, is it; None if the weights cannot be read or compared.
    """
    kinds = [_fineness(each.tensor) for each in (*left, *right)]
    if not kinds or None in kinds:
        return None
    coarsest = min(
        (each.tensor.dtype for each in (*left, *right)), key=lambda kind: _FINENESS[kind]
    )
    sides = []
    for side in (left, right):
        found = [_sample(each) for each in side]
        if any(rows is None for rows in found):
            return None
        widths = {rows.shape[1] for rows in found if rows is not None}
        if len(widths) != 1:
            return None
        known = [rows for rows in found if rows is not None]
        sides.append(known[0] if len(known) == 1 else np.concatenate(known))
    if sides[0].shape[1] != sides[1].shape[1]:
        return None
    first = _rounded(sides[0], coarsest)
    second = first if np.array_equal(sides[0], sides[1]) else _rounded(sides[1], coarsest)
    found_rows = _equal(first, second)
    if near and 2 * int((found_rows >= 0).sum()) < len(found_rows):
        found_rows = _near(first, second)
    return found_rows


@remembered
def are_equal(
    left: Parameter,
    right: Parameter,
    left_rows: Indices | None = None,
    right_rows: Indices | None = None,
) -> bool:
    """True if two weights of one shape have, as far as they were read, mostly equal rows.

    A weight that is one number throughout, such as that of a new norm, proves nothing. So do
    small differences: only a few rows of a weight that is equal may differ.

    Args:
        left, right: the weights.
        left_rows, right_rows: which rows of each are meant; None for all.
    """
    shapes = [_shape(left, left_rows), _shape(right, right_rows)]
    if shapes[0] is None or shapes[0] != shapes[1] or len(shapes[0]) not in (1, 2):
        return False
    kinds = [each.tensor.dtype for each in (left, right) if is_float(each.tensor)]
    if len(kinds) < 2 or any(kind not in _FINENESS for kind in kinds):
        return False
    coarsest = min(kinds, key=lambda kind: _FINENESS[kind])
    rows = [_sample(left, _SOME, left_rows), _sample(right, _SOME, right_rows)]
    if rows[0] is None or rows[1] is None:
        return False
    one, other = (_hashes(_rounded(each, coarsest)) for each in rows if each is not None)
    return bool((one != 0).any()) and 2 * int(((one == other) & (one != 0)).sum()) > len(one)


@remembered
def is_one_more(left: Parameter, right: Parameter) -> bool:
    """True if a weight of a norm is that of the other side with one added, on either side.

    Gemma multiplies by ``1 + weight``. What optimises graphs keeps the sum and not the weight.
    """
    shape = shape_of(left.tensor)
    if shape is None or len(shape) != 1 or shape != shape_of(right.tensor):
        return False
    if not is_float(left.tensor) or not is_float(right.tensor):
        return False
    try:
        one, other = (np.asarray(each.tensor.nd(), np.float64) for each in (left, right))
    except AitError:
        return False
    bits = min(_FINENESS.get(each.tensor.dtype, 0) for each in (left, right))
    largest = np.maximum(np.abs(one), np.abs(other))
    return bool((np.abs(np.abs(one - other) - 1) <= largest / 2**bits).all())


@remembered
def digest_of(parameter: Parameter) -> bytes | None:
    """A few bytes that weights of equal numbers share, rounded to the coarsest type.

    Returns:
        None where the weight cannot be read, or is alike throughout.
    """
    shape = shape_of(parameter.tensor)
    if shape is None or len(shape) != 2 or not is_float(parameter.tensor):
        return None
    rows = _sample(parameter, _SOME)
    if rows is None:
        return None
    hashes = _hashes(_rounded(rows, DType.BFLOAT16))
    return hashes.tobytes() if hashes.any() else None


def _rounded(rows: Array, kind: DType) -> Array:
    if kind is DType.FLOAT32:
        return rows
    rounded: Array = rows.astype(kind.numpy_type).astype(np.float32)
    return rounded


def _fineness(tensor: Tensor) -> int | None:
    shape = shape_of(tensor)
    if shape is None or len(shape) != 2 or not is_float(tensor):
        return None
    return _FINENESS.get(tensor.dtype)


def _shape(parameter: Parameter, rows: Indices | None) -> tuple[int, ...] | None:
    """Rows that make columns of the result, and elements of each; None if nobody knows."""
    shape = shape_of(parameter.tensor)
    if shape is None:
        return None
    shape = shape[::-1] if parameter.transposed else shape
    return shape if rows is None else (len(rows), *shape[1:])


def _sample(parameter: Parameter, most: int = 0, chosen: Indices | None = None) -> Array | None:
    """A few elements of each row that makes a column of the result, float32 ``[rows, some]``.

    Args:
        parameter: one axis is one row.
        most: rows that are read, of all parts of the weight; 0 for every row.
        chosen: the rows that are meant; None for all.
    """
    tensor = parameter.tensor
    try:
        if not tensor.has_data:
            return None
        shape = shape_of(tensor)
        if shape is not None and len(shape) == 2 and not parameter.transposed:
            count = shape[0] if chosen is None else len(chosen)
            rows = _some(chosen, count, most)
            if not 0 < min(most or count, count) <= MOST_ROWS:
                return None
            found = some_elements(tensor, rows, _places(shape[1]))
            if found is not None:
                return found
        array = tensor.numpy(mmap=True) if tensor.format == FORMAT_ND else tensor.nd()
    except AitError:
        return None
    if parameter.transposed:
        array = array.T
    array = array.reshape(1, -1) if array.ndim == 1 else array
    chosen = _some(chosen, len(array) if chosen is None else len(chosen), most)
    if chosen is not None:
        array = array[chosen]
    if array.ndim != 2 or not array.size or len(array) > MOST_ROWS:
        return None
    return array[:, _places(array.shape[1])].astype(np.float32)


def _some(chosen: Indices | None, count: int, most: int) -> Indices | None:
    """A few of the rows that are meant; None for all."""
    if not most or count <= most:
        return chosen
    some = np.linspace(0, count - 1, most).astype(np.int64)
    return some if chosen is None else chosen[some]


def _places(width: int) -> Indices:
    """Which elements of a row are read: all of a short one, stretches of a longer one."""
    if width <= _STRETCHES * _LENGTH:
        return np.arange(width)
    starts = np.linspace(0, width - _LENGTH, _STRETCHES).astype(np.int64)
    return (starts[:, None] + np.arange(_LENGTH)).reshape(-1)


def _equal(left: Array, right: Array) -> Indices:
    """The left row of equal elements for each right one, -1 where none or several are."""
    own, place = _once(_hashes(left))
    if left is right:
        same = np.full(len(right), -1, dtype=np.int64)
        same[place] = place
        return same
    other, where = _once(_hashes(right))
    _, mine, its = np.intersect1d(own, other, assume_unique=True, return_indices=True)
    found = np.full(len(right), -1, dtype=np.int64)
    found[where[its]] = place[mine]
    return found


def _hashes(rows: Array) -> NDArray[np.uint64]:
    """A number for each row; 0 for a row that proves nothing."""
    factors = _factors(rows.shape[1])
    hashes: NDArray[np.uint64] = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _HASHED):
        part = rows[start : start + _HASHED]
        bits = (part + np.float32(0)).view(np.uint32).astype(np.uint64)  # minus zero is zero
        bits *= factors
        own = bits.sum(axis=1, dtype=np.uint64)
        own[~np.isfinite(part).all(axis=1) | (part == part[:, :1]).all(axis=1)] = 0
        hashes[start : start + _HASHED] = own
    return hashes


@lru_cache(maxsize=64)
def _factors(width: int) -> NDArray[np.uint64]:
    """Odd numbers without a pattern (splitmix64): to load NumPy's generators takes memory."""
    mixed = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    odd: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)
    return odd


def _once(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Indices]:
    """Numbers that occur once, and where."""
    values, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    kept = (counts == 1) & (values != 0)
    return values[kept], places[kept]


def _near(left: Array, right: Array) -> Indices:
    """The left row of nearly the same direction for each right one, by a wide margin."""
    found = np.full(len(right), -1, dtype=np.int64)
    if len(left) < 2 or max(len(left), len(right)) > _NEAR_ROWS:
        return found
    ours, theirs = _directions(left), _directions(right)
    for start in range(0, len(right), 1024):
        cosines = theirs[start : start + 1024] @ ours.T
        best = cosines.argmax(axis=1)
        rows = np.arange(len(best))
        top = cosines[rows, best].copy()
        cosines[rows, best] = -1.0
        sure = (top >= _ALIKE) & (cosines.max(axis=1) < _APART)
        found[start : start + 1024][sure] = best[sure]
    values, counts = np.unique(found, return_counts=True)
    found[np.isin(found, values[counts > 1])] = -1
    return found


def _directions(rows: Array) -> Array:
    finite = np.where(np.isfinite(rows), rows, 0)
    norms = np.linalg.norm(finite, axis=1, keepdims=True)
    directions: Array = finite / np.where(norms > 0, norms, 1)
    return directions
