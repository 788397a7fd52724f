"""One pass over a pair in NumPy, block by block in float64.

The plain statement of what the native kernel computes. It serves element types that the kernel
does not know (complex numbers), and installations without compiled libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.metrics.totals import SideTotals, Totals, empty_totals

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Relative errors are taken of at least this: float32's machine epsilon, below which the manual's
# formula does not look at an element at all.
FLOOR = 2.0**-23


@dataclass(frozen=True, slots=True)
class Settings:
    """What a pass counts against.

    Attributes:
        ulp: type in which ULP distances are counted, None for none.
        ulp_limit: distance up to which a place does not count as beyond.
        rtol, atol: limit of ``passed``.
    """

    ulp: DType | None
    ulp_limit: int
    rtol: float
    atol: float


def block_totals(golden: Array, mine: Array, settings: Settings) -> Totals:
    """Totals of one block.

    Args:
        golden, mine: real values of any type, 1-D of the same length.
        settings: see :class:`Settings`.
    """
    totals = empty_totals()
    totals.count = golden.size
    with np.errstate(all="ignore"):
        g, m = golden.astype(np.float64), mine.astype(np.float64)
        _add_side(totals.golden, g)
        _add_side(totals.mine, m)
        finite: Flags = np.isfinite(g) & np.isfinite(m)
        same: Flags = (golden == mine) if golden.dtype == mine.dtype else (g == m)
        same |= np.isnan(g) & np.isnan(m)
        bad = ~finite & ~same
        totals.unequal = golden.size - int(np.count_nonzero(same))
        totals.bad = int(np.count_nonzero(bad))
        if totals.bad:
            totals.first_bad = int(np.argmax(bad))
        totals.finite = int(np.count_nonzero(finite))
        if totals.finite:
            difference = _difference(golden, mine, g, m)
            _add_errors(totals, g, m, difference, finite, settings)
            g, m, difference = g[finite], m[finite], difference[finite]
            _add_sums(totals, g, m)
            _add_weights(totals, g, m, difference)
            if settings.ulp is not None:
                distance = ulp_distance(golden[finite], mine[finite], settings.ulp)
                totals.max_ulp = float(distance.max())
                totals.beyond_ulp = int(np.count_nonzero(distance > settings.ulp_limit))
    return totals


def _add_side(side: SideTotals, values: Floats) -> None:
    side.nan = int(np.count_nonzero(np.isnan(values)))
    side.inf = int(np.count_nonzero(np.isinf(values)))
    side.finite = values.size - side.nan - side.inf
    if side.finite:
        kept = values[np.isfinite(values)] if side.finite < values.size else values
        side.high, side.low = float(kept.max()) + 0.0, float(kept.min()) + 0.0  # not -0
        side.sum, side.squares = float(kept.sum()), float(np.dot(kept, kept))


def _difference(golden: Array, mine: Array, g: Floats, m: Floats) -> Floats:
    """Mine minus golden; 64-bit integers are subtracted as such, float64 cannot hold them."""
    if {golden.dtype.kind, mine.dtype.kind} <= {"i", "u"} and 8 in (
        golden.dtype.itemsize,
        mine.dtype.itemsize,
    ):
        exact: Floats = (mine.astype(object) - golden.astype(object)).astype(np.float64)
        return exact
    return m - g


def _add_errors(
    totals: Totals, g: Floats, m: Floats, difference: Floats, finite: Flags, settings: Settings
) -> None:
    error = np.where(finite, np.abs(difference), -1.0)
    totals.worst = int(np.argmax(error))
    totals.max_absolute = float(error[totals.worst])
    totals.worst_golden, totals.worst_mine = float(g[totals.worst]), float(m[totals.worst])
    error, size = error[finite], np.abs(g[finite])
    relative = error / np.maximum(size, FLOOR)
    totals.sum_absolute, totals.squares = float(error.sum()), float(np.dot(error, error))
    totals.max_relative, totals.sum_relative = float(relative.max()), float(relative.sum())
    totals.passed = int(np.count_nonzero(error <= settings.atol + settings.rtol * size))


def _add_sums(totals: Totals, g: Floats, m: Floats) -> None:
    totals.dot = float(np.dot(g, m))
    totals.golden_squares = float(np.dot(g, g))
    totals.my_squares = float(np.dot(m, m))


def _add_weights(totals: Totals, g: Floats, m: Floats, difference: Floats) -> None:
    totals.kl_reference, totals.kl_my_reference = float(g.max()), float(m.max())
    weights = np.exp(g - totals.kl_reference)
    totals.kl_weights = float(weights.sum())
    totals.kl_linear = float(np.dot(weights, difference))
    if totals.kl_my_reference - totals.kl_reference > 600 or float(difference.max()) > 700:
        totals.kl_excess = np.inf
    else:
        totals.kl_excess = float(np.dot(weights, _excess(difference)))
    totals.kl_my_weights = float(np.exp(m - totals.kl_my_reference).sum())


def _excess(x: Floats) -> Floats:
    """``exp(x) - 1 - x``, without cancellation near zero."""
    series = np.zeros_like(x)
    for order in range(9, 1, -1):
        series = x / order * (1 + series)
    series *= x
    return np.where(np.abs(x) < 0.05, series, np.expm1(x) - x)


def ulp_distance(golden: Array, mine: Array, dtype: DType) -> NDArray[Any]:
    """How many representable numbers of ``dtype`` lie between two finite values, plus one.

    Both are first rounded to that type; +0 and -0 are one number. What rounds to infinity counts
    as the number after the largest.
    """
    g, m = ordinals(golden, dtype), ordinals(mine, dtype)
    high, low = np.maximum(g, m), np.minimum(g, m)
    # The distance of two int64 fits into uint64 only.
    return high.astype(np.uint64) - low.astype(np.uint64)


def ordinals(values: Array, dtype: DType) -> NDArray[np.int64]:
    """Places in the order of all numbers of a type, 0 for zero, after rounding to that type."""
    assert dtype.numpy_type is not None
    if np.dtype(dtype.numpy_type) == ml_dtypes.float8_e8m0fnu:
        # Without sign and zero the codes are in order.
        return values.astype(dtype.numpy_type).view(np.uint8).astype(np.int64)
    rounded = values if values.dtype == dtype.numpy_type else _rounded(values, dtype)
    width = rounded.dtype.itemsize
    bits: NDArray[np.int64] = rounded.view(f"u{width}").astype(np.int64)
    if width == 8:
        return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
    sign = 1 << (8 * width - 1 if dtype.bits >= 8 else dtype.bits - 1)
    return np.where(bits & sign, -(bits & (sign - 1)), bits & (sign - 1))


def _rounded(values: Array, dtype: DType) -> Array:
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        return values.astype(np.float64).astype(dtype.numpy_type)
