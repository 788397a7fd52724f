"""Totals of a pair for metrics that look at relative errors in the precision of the values.

The tables of API-level dumps are defined so: cosine, Euclidean distance and the largest absolute
error in float64, relative errors in float32, or in float64 if a side has more than 32 bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.metrics.native import NativeMetrics, address_of, native_metrics
from ait_llm.metrics.numpy_pass import Settings

_BLOCK = 1 << 16  # elements at a time: their float64 copies stay in the second-level cache
_PLAIN = Settings(None, 0, 0.0, 0.0)


class Ratios(ctypes.Structure):
    """Totals; places where both sides are NaN or the same infinity count as 0.

    Attributes:
        count: elements.
        misplaced: other elements that are not finite on both sides.
        dot, golden_squares, my_squares, squares: sums of g m, g g, m m and (m - g)^2.
        max_absolute: largest ``abs(m - g)``.
        max_relative: largest ``abs((m - g) / g)``; where g is 0, the machine epsilon of the type is
            added to both.
        thousandth, five_thousandths: elements with a relative error below 0.001 and 0.005.
    """

    count: int
    misplaced: int
    dot: float
    golden_squares: float
    my_squares: float
    squares: float
    max_absolute: float
    max_relative: float
    thousandth: int
    five_thousandths: int

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("misplaced", ctypes.c_uint64),
        ("dot", ctypes.c_double),
        ("golden_squares", ctypes.c_double),
        ("my_squares", ctypes.c_double),
        ("squares", ctypes.c_double),
        ("max_absolute", ctypes.c_double),
        ("max_relative", ctypes.c_double),
        ("thousandth", ctypes.c_uint64),
        ("five_thousandths", ctypes.c_uint64),
    )


def measure_ratios(
    golden: Array, mine: Array, *, release: Callable[[Array, Array], None] | None = None
) -> Ratios:
    """Totals of two arrays of the same number of elements, in memory that does not grow with them.

    Complex numbers count with real and imaginary part.

    Args:
        golden, mine: arrays of any types and layout.
        release: called with each piece of both that was looked at, in row-major order.
    """
    totals = Ratios()
    add = _native_add(golden, mine) or _numpy_add
    size = _BLOCK << 4 if add is not _numpy_add else _BLOCK
    for g, m in zip(_pieces(golden, size), _pieces(mine, size), strict=True):
        add(totals, g, m)
        if release is not None:
            release(g, m)
    return totals


def _native_add(golden: Array, mine: Array) -> Callable[[Ratios, Array, Array], None] | None:
    """The native function for two element types; None if there is none."""
    if not (_is_short_float(golden) and _is_short_float(mine)):
        return None
    native = native_metrics()
    function = None if native is None else _function(native)
    if native is None or function is None or not native.knows(golden.dtype, mine.dtype, None):
        return None
    settings = native.pair_settings(golden.dtype, mine.dtype, _PLAIN)

    def add(totals: Ratios, g: Array, m: Array) -> None:
        code = function(
            ctypes.byref(settings), address_of(g), address_of(m), g.size, ctypes.byref(totals)
        )
        if code:
            raise ValueError("the native metrics do not know these element types")

    return add


@cache
def _function(native: NativeMetrics) -> Callable[..., int] | None:
    try:
        function = native.library.ait_pair_ratios
    except AttributeError:  # built from older sources
        return None
    pointer = ctypes.c_void_p
    function.argtypes = (pointer, pointer, pointer, ctypes.c_uint64, pointer)
    return function


def _is_short_float(array: Array) -> bool:
    """True for floats of 32 bits at most, those that NumPy knows from ml_dtypes included."""
    kind = array.dtype.kind
    return (kind == "f" and array.dtype.itemsize <= 4) or (
        kind == "V" and array.dtype.name.startswith(("bfloat16", "float8"))
    )


def _pieces(array: Array, size: int) -> Iterator[Array]:
    flat = (
        array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
    )
    for start in range(0, flat.size, size):
        yield flat[start : start + size]


def _as_float(values: Array) -> Array:
    """The values in the type that relative errors are formed in: 16 bits and less as float32."""
    plain = values.dtype.newbyteorder("=")
    if plain.char in "fdFD":
        return values.astype(plain, copy=False)
    return values.astype(np.float64 if plain.kind in "bui" else np.float32)


def _numpy_add(totals: Ratios, golden: Array, mine: Array) -> None:
    b, n = _as_float(golden), _as_float(mine)
    totals.count += n.size
    odd, other = ~np.isfinite(n), ~np.isfinite(b)
    if odd.any() or other.any():
        # NaN answers NaN, an infinity one of its own sign.
        alike = odd & other & ((np.isnan(n) & np.isnan(b)) | (n == b))
        totals.misplaced += int(np.count_nonzero((odd | other) & ~alike))
        n, b = np.where(odd | other, 0, n), np.where(odd | other, 0, b)
    wide = np.complex128 if "c" in n.dtype.kind + b.dtype.kind else np.float64
    n_wide, b_wide = n.astype(wide), b.astype(wide)
    difference = n_wide - b_wide
    totals.dot += float(np.vdot(b_wide, n_wide).real)
    totals.my_squares += float(np.vdot(n_wide, n_wide).real)
    totals.golden_squares += float(np.vdot(b_wide, b_wide).real)
    totals.squares += float(np.vdot(difference, difference).real)
    totals.max_absolute = max(totals.max_absolute, float(np.abs(difference).max()))
    common = np.result_type(n, b)
    n, b = n.astype(common, copy=False), b.astype(common, copy=False)
    zero = b == 0
    if zero.any():
        epsilon = np.finfo(common).eps
        n, b = np.where(zero, n + epsilon, n), np.where(zero, b + epsilon, b)
    with np.errstate(over="ignore"):
        relative = np.abs((n - b) / b)
    totals.max_relative = max(totals.max_relative, float(relative.max()))
    totals.thousandth += int(np.count_nonzero(relative < 0.001))
    totals.five_thousandths += int(np.count_nonzero(relative < 0.005))
