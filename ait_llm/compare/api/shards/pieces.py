"""The piece of the whole that each rank's part answers, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.api.shards.layout import Layout, Range, ranges_of
from ait_llm.formats.elements import Array


@dataclass(frozen=True, slots=True)
class Piece:
    """What one rank holds, beside what it should hold.

    Attributes:
        rank: index of the part.
        whole: pieces of the whole.
        part: pieces of the part of the same shapes.
        is_copy: another rank before it holds the same.
    """

    rank: int
    whole: tuple[Array, ...]
    part: tuple[Array, ...]
    is_copy: bool = False


def pieces_of(
    layout: Layout, whole: Array, parts: Sequence[Array], ids: Array | None = None
) -> list[Piece] | None:
    """Pair each part with what it answers; None if the shapes do not fit the layout.

    A ``sum`` is one piece, that of rank 0: the total of all parts.

    Args:
        layout: how the parts make up the whole.
        whole: the tensor of the side with fewer ranks.
        parts: those of the other side, by rank.
        ids: indices into the whole table, for ``ids`` and ``rows``.
    """
    if layout.turned:
        if any(part.ndim != 2 for part in parts):
            return None
        parts = [part.T for part in parts]
    if layout.kind == "shard":
        return _shards(layout, whole, parts)
    if layout.kind in ("ids", "rows"):
        return None if ids is None else _owned(layout, whole, parts, ids)
    if any(part.shape != whole.shape for part in parts):
        return None
    if layout.kind == "replicate":
        return [Piece(rank, (whole,), (part,), rank > 0) for rank, part in enumerate(parts)]
    return [Piece(0, (whole,), (total(parts),))]


def total(parts: Sequence[Array]) -> Array:
    """The sum of all parts, in float64 or, for complex parts, complex128."""
    wide = np.complex128 if any(part.dtype.kind == "c" for part in parts) else np.float64
    with np.errstate(invalid="ignore"):
        found: Array = parts[0].astype(wide)
        for part in parts[1:]:
            found += part.astype(wide)
    return found


def _shards(layout: Layout, whole: Array, parts: Sequence[Array]) -> list[Piece] | None:
    axis = layout.axis
    if axis >= whole.ndim or any(not _is_part(part.shape, whole.shape, axis) for part in parts):
        return None
    ranges = ranges_of(layout, [part.shape[axis] for part in parts], whole.shape[axis])
    if ranges is None:
        return None
    seen: set[tuple[Range, ...]] = set()
    found = []
    for rank, (part, mine) in enumerate(zip(parts, ranges, strict=True)):
        pieces = (
            tuple(_cut(whole, axis, r.start, r.stop) for r in mine),
            tuple(_cut(part, axis, r.at, r.at + r.stop - r.start) for r in mine),
        )
        key = tuple(mine)
        found.append(Piece(rank, *pieces, key in seen))
        seen.add(key)
    return found


def _is_part(part: tuple[int, ...], whole: tuple[int, ...], axis: int) -> bool:
    return len(part) == len(whole) and all(
        mine == all_of_it
        for place, (mine, all_of_it) in enumerate(zip(part, whole, strict=True))
        if place != axis
    )


def _cut(array: Array, axis: int, start: int, stop: int) -> Array:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _owned(layout: Layout, whole: Array, parts: Sequence[Array], ids: Array) -> list[Piece] | None:
    """Indices that fall into each rank's rows of a table, or what was found there."""
    if len(layout.rows) != len(parts) or any(part.shape != whole.shape for part in parts):
        return None
    if whole.shape[: ids.ndim] != ids.shape:
        return None
    found = []
    first = 0
    for rank, (part, rows) in enumerate(zip(parts, layout.rows, strict=True)):
        owned = (ids >= first) & (ids < first + rows)
        pieces = whole[owned], part[owned]
        if layout.kind == "ids":
            pieces = pieces[0], pieces[1] + first
        found.append(Piece(rank, (pieces[0],), (pieces[1],)))
        first += rows
    return found
