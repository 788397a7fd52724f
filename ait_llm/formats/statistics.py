"""The few numbers that describe a tensor when its data is not stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ait_llm.formats.elements import Array

_BLOCK = 1 << 20  # elements widened at a time, so that memory does not follow the tensor's size


@dataclass(frozen=True, slots=True)
class Statistics:
    """Extremes, mean and L2 norm of the finite elements, and the counts of the others.

    The four values are None where there is no finite element, or where the tool that wrote them
    did not. ``nan`` and ``inf`` are None where they were not counted.
    """

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2norm: float | None = None
    nan: int | None = None
    inf: int | None = None


def measure(array: Array) -> Statistics:
    """Statistics of an array of real numbers or booleans, accumulated in float64.

    Raises:
        TypeError: the elements are complex, strings or objects.
    """
    if array.dtype.kind in "cSUOM":
        raise TypeError(f"statistics of {array.dtype} elements are not defined")
    flat = array.reshape(-1)
    finite_count, nan, inf = 0, 0, 0
    total, squares = 0.0, 0.0
    lowest, highest = float("inf"), float("-inf")
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK].astype(np.float64)
        finite = block[np.isfinite(block)]
        nan_here = int(np.isnan(block).sum())
        nan += nan_here
        inf += block.size - finite.size - nan_here
        if finite.size:
            finite_count += finite.size
            total += float(finite.sum())
            squares += float(np.dot(finite, finite))
            lowest = min(lowest, float(finite.min()))
            highest = max(highest, float(finite.max()))
    if not finite_count:
        return Statistics(nan=nan, inf=inf)
    return Statistics(lowest, highest, total / finite_count, squares**0.5, nan, inf)
