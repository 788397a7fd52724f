"""float64 values whose squares overflow or vanish: sums of scaled values instead."""

from __future__ import annotations

import math

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.metrics.blocks import pieces, real_views
from ait_llm.metrics.totals import Totals

_BLOCK = 1 << 16
_WIDE = ("f8", "c16")
# Squares beyond these overflow in a sum, or lose digits to underflow.
_LARGE = 2.0**480
_SMALL = 2.0**-450


def scaled(value: float, exponent: int) -> float:
    """``value * 2**exponent``, infinite where that overflows."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def exponent_out_of_range(golden: Array, mine: Array, totals: Totals) -> int:
    """Power of two to divide by before squaring; 0 where no scaling is needed."""
    if not any(side.dtype.kind + str(side.dtype.itemsize) in _WIDE for side in (golden, mine)):
        return 0
    largest = max(
        (
            max(abs(side.high), abs(side.low))
            for side in (totals.golden, totals.mine)
            if side.finite
        ),
        default=0.0,
    )
    if largest == 0 or _SMALL < largest < _LARGE:
        return 0
    return math.frexp(largest)[1]


def replace_sums(totals: Totals, golden: Array, mine: Array, exponent: int) -> None:
    """Compute the sums of values and products anew, of values divided by ``2**exponent``.

    Sums of values scale with ``2**exponent``, those of products with its square; ratios of them
    are not affected.
    """
    for side in (totals.golden, totals.mine):
        side.sum = side.squares = 0.0
    totals.dot = totals.golden_squares = totals.my_squares = totals.squares = 0.0
    absolute = 0.0
    for pair in pieces(golden, mine, 0, golden.size, _BLOCK):
        with np.errstate(all="ignore"):
            g, m = (np.ldexp(s.astype(np.float64), -exponent) for s in real_views(*pair))
        for side, values in ((totals.golden, g), (totals.mine, m)):
            kept = values[np.isfinite(values)]
            side.sum += float(kept.sum())
            side.squares += float(np.dot(kept, kept))
        finite = np.isfinite(g) & np.isfinite(m)
        g, m = g[finite], m[finite]
        absolute += float(np.abs(m - g).sum())
        totals.squares += float(np.dot(m - g, m - g))
        totals.dot += float(np.dot(g, m))
        totals.golden_squares += float(np.dot(g, g))
        totals.my_squares += float(np.dot(m, m))
    totals.sum_absolute = scaled(absolute, exponent)
