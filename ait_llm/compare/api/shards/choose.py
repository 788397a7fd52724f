"""Which layout the values of the parts confirm, even if one of them is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.api.shards.layout import Layout
from ait_llm.compare.api.shards.pieces import Piece, pieces_of, total
from ait_llm.formats.elements import Array

# Two random tensors are 1.4 apart, a rank's summand and the sum of two 0.7 or more.
_FAR = 0.6
# A later layout must be this much closer than a likelier one, beyond what rounding makes of it.
_CLOSER, _ROUNDING = 0.5, 1e-6
_SAMPLE = 1 << 18  # elements that are looked at to choose


@dataclass(frozen=True, slots=True)
class Choice:
    """A layout and how well the values fit.

    Attributes:
        layout: the layout.
        distance: relative Euclidean distance that half of the parts keep, at least.
        pieces: of the whole tensors.
    """

    layout: Layout
    distance: float
    pieces: list[Piece]

    @property
    def is_confirmed(self) -> bool:
        """True if most parts are what the layout says; integers must be equal."""
        kinds = {each.dtype.kind for piece in self.pieces for each in piece.whole}
        return self.distance == 0 if kinds <= set("bui") else self.distance < _FAR

    def is_closer_than(self, other: Choice | None) -> bool:
        """True if this fits clearly better than a likelier layout."""
        if other is None or other.distance == np.inf:
            return True
        return self.distance < _CLOSER * other.distance - _ROUNDING


def choose(
    layouts: Iterable[Layout], whole: Array, parts: Sequence[Array], ids: Array | None = None
) -> Choice | None:
    """The layout whose parts are closest to the whole; the first of equals. None if none fits.

    What counts is the distance that the better half of the ranks keeps, so a rank that holds wrong
    values does not decide.

    Args:
        layouts: what may be, the likelier first.
        whole: the tensor of the side with fewer ranks.
        parts: those of the other side, by rank.
        ids: indices into the whole table, for ``ids`` and ``rows``.
    """
    best: Choice | None = None
    for layout in layouts:
        pieces = pieces_of(layout, whole, parts, ids)
        if pieces is None:
            continue
        found = _sum_distance(whole, parts) if layout.kind == "sum" else _typical(pieces)
        choice = Choice(layout, found, pieces)
        if choice.is_closer_than(best):
            best = choice
        if found == 0:
            break
    return best


def distance(piece: Piece) -> float:
    """Relative Euclidean distance of a part from what it should be, of a sample of large ones.

    Infinite where one side alone is not finite, or what should be 0 is not.
    """
    error = size = 0.0
    for whole, part in zip(piece.whole, piece.part, strict=True):
        golden, mine = _plain(_sample(whole)), _plain(_sample(part))
        finite = np.isfinite(golden) & np.isfinite(mine)
        if not finite.all():
            alike = finite | (golden == mine) | (np.isnan(golden) & np.isnan(mine))
            if not alike.all():
                return np.inf
            golden, mine = golden[finite], mine[finite]
        away = mine - golden
        error += float(np.vdot(away, away).real)
        size += float(np.vdot(golden, golden).real)
    if error == 0:
        return 0.0
    return float(np.sqrt(error / size)) if size else np.inf


def _typical(pieces: Sequence[Piece]) -> float:
    """What half of the parts keep; parts without elements say nothing."""
    found = sorted(distance(piece) for piece in pieces if any(each.size for each in piece.part))
    return found[(len(found) - 1) // 2] if found else 0.0


def _sum_distance(whole: Array, parts: Sequence[Array]) -> float:
    """How far the sum is from the whole, not counting what a single wrong part adds.

    The smallest of: the distance of the sum; the typical error of an element in proportion to a
    typical element, for parts with some wrong elements; the distance with one part scaled, for
    parts that are wrong by a factor.
    """
    golden = _plain(_sample(whole))
    mine = [_plain(_sample(part)) for part in parts]
    away = total(mine) - golden
    usable = np.isfinite(away)
    if np.count_nonzero(usable) * 2 < away.size:
        return np.inf
    away, golden = away[usable], golden[usable]
    size = float(np.linalg.norm(golden))
    error = float(np.linalg.norm(away))
    if not size:
        return np.inf if error else 0.0
    middle = float(np.median(np.abs(golden)))
    found = error / size
    if middle:
        found = min(found, float(np.median(np.abs(away))) / middle)
    scaled = sorted(_without(part[usable], away) / size for part in mine)
    if len(scaled) > 1 and scaled[1] > _FAR * error / size:  # equal parts would all explain it
        found = min(found, scaled[0])
    return found


def _without(part: Array, away: Array) -> float:
    """What is left of an error if one part may have any factor."""
    square = float(np.vdot(part, part).real)
    if not square:
        return float(np.linalg.norm(away))
    return float(np.linalg.norm(away - part * (np.vdot(part, away) / square)))


def _sample(array: Array) -> Array:
    """Every so many elements along the longest axis, the same places of arrays of one shape."""
    if array.size <= _SAMPLE:
        return array
    axis = int(np.argmax(array.shape))
    step = -(-array.size // _SAMPLE)
    return array[(slice(None),) * axis + (slice(None, None, step),)]


def _plain(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)
