"""Which ranks hold a wrong part, and the metrics of all parts together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.api.shards.pieces import Piece
from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.judge import tolerance_for
from ait_llm.metrics.ratios import Ratios, measure_ratios

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of the parts of one tensor.

    Attributes:
        off: ranks whose part is wrong; of a sum 0 stands for all.
        reason: what is wrong with the worst, as a clause; empty if nothing is.
        totals: of all parts that are no copies.
    """

    off: tuple[int, ...]
    reason: str
    totals: Ratios


def judge_pieces(
    pieces: Sequence[Piece], golden_dtype: DType, my_dtype: DType, *, whole_is_golden: bool
) -> Judged:
    """Find the parts that are further off than two right implementations may be.

    The limits are those of :mod:`ait_llm.judge.tolerance`. An error is set in proportion to the
    whole tensor, so that a part of small values is not judged by itself.

    Args:
        pieces: of one layout.
        golden_dtype, my_dtype: logical element types.
        whole_is_golden: False if the parts are the trusted side.
    """
    limits = tolerance_for(golden_dtype, my_dtype)
    each = [_measured(piece, whole_is_golden) for piece in pieces]
    totals = Ratios()
    for piece, sums in zip(pieces, each, strict=True):
        if not piece.is_copy:
            add_totals(totals, sums)
    rms = math.sqrt(totals.golden_squares / totals.count) if totals.count else 0.0
    off: list[int] = []
    worst, reason = -1.0, ""
    for piece, sums in zip(pieces, each, strict=True):
        found = _excess(piece, sums, rms, limits.relative_euclidean, limits.max_element)
        if found[0] > 1:
            off.append(piece.rank)
            if found[0] > worst:
                worst, reason = found
    return Judged(tuple(off), reason, totals)


def add_totals(totals: Ratios, more: Ratios) -> None:
    """Add what was measured of other elements of the same tensor."""
    for name in ("count", "misplaced", "dot", "golden_squares", "my_squares", "squares"):
        setattr(totals, name, getattr(totals, name) + getattr(more, name))
    for name in ("thousandth", "five_thousandths"):
        setattr(totals, name, getattr(totals, name) + getattr(more, name))
    totals.max_absolute = max(totals.max_absolute, more.max_absolute)
    totals.max_relative = max(totals.max_relative, more.max_relative)


def _measured(piece: Piece, whole_is_golden: bool) -> Ratios:
    found = Ratios()
    for whole, part in zip(piece.whole, piece.part, strict=True):
        if whole.size:
            golden, mine = (whole, part) if whole_is_golden else (part, whole)
            add_totals(found, measure_ratios(golden, mine))
    return found


def _excess(
    piece: Piece, sums: Ratios, rms: float, far: float, element: float
) -> tuple[float, str]:
    """How many times a part is beyond its limit, and why."""
    if sums.misplaced:
        return math.inf, f"NaN or Inf at {sums.misplaced} places where the other side differs"
    if not sums.squares:
        return 0.0, ""
    if not far:
        return math.inf, "elements differ, and integers must be equal"
    size = rms * math.sqrt(sums.count)
    away = math.sqrt(sums.squares)
    if not size:
        return math.inf, "it should be zero everywhere and is not"
    ratio = away / size / far
    if ratio > 1:
        return ratio, f"relative Euclidean distance {away / size:.3g} exceeds {far:g}"
    if sums.max_absolute <= element * rms:
        return ratio, ""
    single = max(map(_worst_element, piece.whole, piece.part, [rms] * len(piece.part)))
    if single <= element:
        return ratio, ""
    return single / element, (
        f"an element is {single:.3g} of its size and the tensor's root mean square away, "
        f"more than {element:g}"
    )


def _worst_element(whole: Array, part: Array, rms: float) -> float:
    one, other = np.ravel(whole), np.ravel(part)
    worst = 0.0
    for start in range(0, one.size, _CHUNK):
        first, second = (
            each[start : start + _CHUNK].astype(np.complex128) for each in (one, other)
        )
        with np.errstate(invalid="ignore"):
            found = np.abs(second - first) / (np.abs(first) + rms)
        worst = max(worst, float(np.nanmax(np.where(np.isfinite(found), found, 0.0), initial=0.0)))
    return worst
