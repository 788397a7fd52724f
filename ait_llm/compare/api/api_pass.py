"""One pass over two tensors for the metrics of API-level tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ait_llm.formats.elements import Array

_BLOCK = 1 << 16  # elements at a time: their float64 copies stay in the second-level cache


@dataclass(slots=True)
class Sums:
    """Totals over all elements; places where both sides are alike and not finite count as 0.

    Attributes:
        count: elements.
        misplaced: elements that are finite on one side only.
        dot, my_squares, golden_squares, squares: n.b, n.n, b.b and (n - b).(n - b).
        max_absolute, max_relative: largest errors.
        thousandth, five_thousandths: elements with a relative error below 0.001 and 0.005.
    """

    count: int = 0
    misplaced: int = 0
    dot: float = 0.0
    my_squares: float = 0.0
    golden_squares: float = 0.0
    squares: float = 0.0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    thousandth: int = 0
    five_thousandths: int = 0


def pass_over(mine: Array, golden: Array) -> Sums:
    """Totals of two arrays of the same number of elements, in memory that does not grow with them.

    Complex numbers count with real and imaginary part.
    """
    sums = Sums()
    for n, b in zip(_blocks(mine), _blocks(golden), strict=True):
        _add(sums, n, b)
    return sums


def _blocks(array: Array) -> Iterator[Array]:
    """Pieces in row-major order as float32, float64 or complex numbers."""
    flat = (
        array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
    )
    for start in range(0, flat.size, _BLOCK):
        yield _as_float(flat[start : start + _BLOCK])


def _as_float(values: Array) -> Array:
    """The values in the type that relative errors are formed in: 16 bits and less as float32."""
    plain = values.dtype.newbyteorder("=")
    if plain.char in "fdFD":
        return values.astype(plain, copy=False)
    return values.astype(np.float64 if plain.kind in "bui" else np.float32)


def _add(sums: Sums, n: Array, b: Array) -> None:
    sums.count += n.size
    bad, other = ~np.isfinite(n), ~np.isfinite(b)
    if bad.any() or other.any():
        # NaN answers NaN, an infinity one of its own sign.
        alike = bad & other & ((np.isnan(n) & np.isnan(b)) | (n == b))
        sums.misplaced += int(np.count_nonzero((bad | other) & ~alike))
        n, b = np.where(bad | other, 0, n), np.where(bad | other, 0, b)
    wide = np.complex128 if "c" in n.dtype.kind + b.dtype.kind else np.float64
    n_wide, b_wide = n.astype(wide), b.astype(wide)
    difference = n_wide - b_wide
    absolute = np.abs(difference)
    sums.dot += float(np.vdot(b_wide, n_wide).real)
    sums.my_squares += float(np.vdot(n_wide, n_wide).real)
    sums.golden_squares += float(np.vdot(b_wide, b_wide).real)
    sums.squares += float(np.vdot(difference, difference).real)
    sums.max_absolute = max(sums.max_absolute, float(absolute.max()))
    common = np.result_type(n, b)
    n, b = n.astype(common, copy=False), b.astype(common, copy=False)
    zero = b == 0
    if zero.any():
        epsilon = np.finfo(common).eps
        n, b = np.where(zero, n + epsilon, n), np.where(zero, b + epsilon, b)
    with np.errstate(over="ignore"):
        relative = np.abs((n - b) / b)
    sums.max_relative = max(sums.max_relative, float(relative.max()))
    sums.thousandth += int(np.count_nonzero(relative < 0.001))
    sums.five_thousandths += int(np.count_nonzero(relative < 0.005))
