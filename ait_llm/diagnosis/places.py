"""Signatures of elements that are wrong in some places only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ait_llm.diagnosis.kinds import Kind
from ait_llm.diagnosis.residual import Array, Hypothesis, Residual

_FEW = 8  # elements that may be wrong each for itself
_FEW_SHARE = 1e-3


def confinement(wrong: NDArray[np.bool_]) -> str:
    """Which part of an output is wrong, by the axes along which not all of it is."""
    total = int(wrong.sum())
    if not total:
        return "no element is off by more than rounding"
    parts = []
    for axis, size in enumerate(wrong.shape):
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        indices = np.flatnonzero(wrong.any(axis=others))
        if 0 < len(indices) < size:
            parts.append(f"{ranges(indices)} of axis {axis}")
    place = f", all in {' and '.join(parts)}" if parts else ""
    return f"{total} of {wrong.size} elements are off{place}"


def ranges(indices: NDArray[np.integer]) -> str:
    """``3``, ``3 to 7``, or the first ones and how many more."""
    first, last = int(indices[0]), int(indices[-1])
    if first == last:
        return str(first)
    if last - first == len(indices) - 1:
        return f"{first} to {last}"
    shown = ", ".join(map(str, indices[:4]))
    return shown if len(indices) <= 4 else f"{shown} and {len(indices) - 4} more"


def places(residual: Residual, others: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Isolated elements, and regions that hold something that was never computed there.

    Args:
        residual: of the output.
        others: tensors whose content a buffer may still hold, by what to call them.
    """
    wrong = residual.wrong
    count = int(wrong.sum())
    if not count:
        return
    if count <= max(1, min(_FEW, int(_FEW_SHARE * residual.size))):
        yield _isolated(residual, count)
    else:
        yield from _constant(residual, count)
    for name, values in others.items():
        if values.size == residual.size and count > 1:
            yield from _other(residual, name, values.reshape(residual.mine.shape))


def _isolated(residual: Residual, count: int) -> Hypothesis:
    wrong = residual.wrong
    at = np.unravel_index(int(np.flatnonzero(wrong)[0]), wrong.shape)
    place = ", ".join(str(int(each)) for each in at)
    mine, right = float(residual.mine[at]), float(residual.right[at])
    what = "has the wrong sign" if mine == -right else f"is {mine:.6g} instead of {right:.6g}"
    text = f"[{place}] {what}, all others are right"
    if count > 1:
        text = f"{count} of {residual.size} elements are wrong, the first is [{place}]: it {what}"
    values = np.where(wrong, residual.mine, residual.right)
    # Its index takes more bits than the element has digits; few of them are told all the same.
    return Hypothesis(Kind.ELEMENTS, values, text, {"elements": float(count)}, cost=0.0)


def _constant(residual: Residual, count: int) -> Iterator[Hypothesis]:
    """All wrong elements hold the same number, zero above all."""
    wrong = residual.wrong
    found, counts = np.unique(residual.mine[wrong], return_counts=True)
    value = float(found[counts.argmax()])
    # Elements whose right value is close to that number count among the region, too.
    if value:
        region = wrong & (residual.mine == value)
        if int(region.sum()) < count or _is_cut(residual, value):
            return
        text = f"{confinement(wrong)}, and hold {value:.6g}"
    else:
        region = residual.mine == 0
        text = f"{confinement(wrong)}, and hold zeros"
    values = np.where(region, value, residual.right)
    boundaries = 2.0 * wrong.ndim + 1
    yield Hypothesis(Kind.STALE, values, text, {"value": value}, boundaries)


def _is_cut(residual: Residual, value: float) -> bool:
    """Values at a limit that the right ones are beyond are cut, not stale."""
    return bool((np.abs(residual.exact[residual.wrong]) > abs(value)).all())


def _other(residual: Residual, name: str, values: Array) -> Iterator[Hypothesis]:
    """Wrong elements hold what another tensor has at the same place."""
    wrong = residual.wrong
    if float(np.ptp(values[wrong])) == 0 or not (values == residual.mine)[wrong].all():
        return
    text = f"{confinement(wrong)}, and hold the values of {name} there"
    held = np.where(wrong, values, residual.right)
    yield Hypothesis(Kind.STALE, held, text, {"holds": name}, 2.0 * wrong.ndim + 1)
