"""Signatures of values that are off by a constant, limited, or rounded in another way."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from ait_llm.core import DType
from ait_llm.diagnosis.kinds import Kind
from ait_llm.diagnosis.residual import Array, Hypothesis, Residual, largest, spacing

_SMALLEST_FACTOR = 1e-3  # less is no scale but nothing
_OUTLIERS = 0.01
_NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def amounts(residual: Residual) -> Iterator[Hypothesis]:
    """Scale, offset, saturation and roundings that the whole output has in common."""
    yield from _scale(residual)
    yield from _offset(residual)
    yield from _saturation(residual)
    yield from _roundings(residual)


def _scale(residual: Residual) -> Iterator[Hypothesis]:
    """``mine = factor * right``; the median of ratios is a start that outliers do not move."""
    right, mine = residual.right, residual.mine
    # Where values are small their rounding decides the ratio.
    large = np.abs(right) > 0.1 * np.abs(right).max(initial=0.0)
    if not large.any() or not np.abs(right[large]).min():
        return
    factor = float(np.median(mine[large] / right[large]))
    near = large & (np.abs(mine - factor * right) <= 4 * residual.gaps)
    if near.any():
        factor = float((mine[near] * right[near]).sum() / (right[near] ** 2).sum())
    if abs(factor) < _SMALLEST_FACTOR or not np.isfinite(factor) or factor == 1:
        return
    if not _follows(residual, factor * right):
        return
    yield Hypothesis(
        Kind.SCALE, factor * right, f"every element is {factor:.5g} times too large"
        if factor > 1
        else f"every element is multiplied by {factor:.5g}", {"factor": factor},
    )  # fmt: skip


def _offset(residual: Residual) -> Iterator[Hypothesis]:
    offset = float(np.median(residual.mine - residual.right))
    near = np.abs(residual.mine - residual.right - offset) <= 4 * residual.gaps
    if near.any():
        # Large elements are rounded coarsely; the mean of least variance counts them less.
        gaps = np.maximum(residual.gaps, spacing(residual.mine, residual.dtype))[near]
        offset = float(np.average((residual.mine - residual.right)[near], weights=gaps**-2.0))
    if offset and _follows(residual, residual.right + offset):
        text = f"{offset:+.5g} is added to every element"
        yield Hypothesis(Kind.OFFSET, residual.right + offset, text, {"offset": offset})


def _follows(residual: Residual, values: Array) -> bool:
    """Nearly all elements are as predicted, to two spacings: one for each rounding.

    Many errors are nearly proportional to the result; a constant factor is exactly so.
    """
    off = np.abs(residual.mine - values)
    limit = 2 * spacing(values, residual.dtype) + 4 * residual.noise
    return float((off > limit).mean()) < _OUTLIERS


def _saturation(residual: Residual) -> Iterator[Hypothesis]:
    """``mine = clip(right, -limit, limit)`` where at least two elements are cut."""
    limit = float(np.abs(residual.mine).max(initial=0.0))
    cut = np.abs(residual.exact) > limit
    if int((cut & residual.wrong).sum()) < 2 or not limit:
        return
    what = "the largest value of its type" if limit == largest(residual.dtype) else "a limit"
    yield Hypothesis(
        Kind.SATURATED,
        np.clip(residual.right, -limit, limit),
        f"{int(cut.sum())} elements stand at {limit:.6g}, {what}, and should be beyond",
        {"limit": limit},
    )


def _roundings(residual: Residual) -> Iterator[Hypothesis]:
    """Rounded twice, to a narrower type first; or rounded toward zero."""
    exact = residual.exact
    own = {DType.BFLOAT16: "bfloat16", DType.FLOAT16: "float16"}.get(residual.dtype)
    if not residual.dtype.is_floating:
        return
    for name, storage in _NARROW.items():
        if name == own or (own == "bfloat16" and name == "float16"):
            continue  # float16 has more digits than bfloat16
        with np.errstate(over="ignore"):
            twice = exact.astype(storage).astype(np.float64)
        text = f"values were rounded to {name} before they were stored"
        yield Hypothesis(Kind.DOUBLE_ROUNDING, twice, text, {"through": name})
    right, gaps = residual.right, residual.gaps
    # Of a number just above a power of two the next lower one is half a spacing away.
    away = np.abs(right) > np.abs(exact)
    cut = np.where(away, right - np.copysign(gaps, right), right)
    text = "values were cut off instead of rounded to nearest"
    yield Hypothesis(Kind.DOUBLE_ROUNDING, cut, text, {"through": "toward zero"})
