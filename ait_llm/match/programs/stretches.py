"""A map from rows to rows as a few stretches: joined, interleaved by head, in another rotary order.

A map has noise: a row that a fault changed has no partner, two may have changed places. What lies
between rows of one stretch belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.weight_rows import Indices

Flags = NDArray[np.bool_]

_MOST = 8  # stretches for each weight; more are no order that anybody chose
_CUTS = 4  # widths of heads that are tried
_KNOWN = 0.75  # share of the rows that must have a partner


@dataclass(frozen=True, slots=True)
class Stretch:
    """Columns of one projection of a group that are columns of one of the other side's group.

    Attributes:
        left, right: number of the projection within its group.
        left_columns, right_columns: which of its columns.
    """

    left: int
    right: int
    left_columns: Columns
    right_columns: Columns


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows that follow each other on both sides; ``turn`` as in :class:`Columns`."""

    left: int
    right: int
    length: int
    turn: tuple[int, int] = (0, 0)


def stretches(
    partners: Indices, left: Sequence[int], right: Sequence[int]
) -> tuple[Stretch, ...] | None:
    """Describe a map of rows.

    Args:
        partners: left row of each right row, -1 if unknown.
        left, right: rows of each weight of either side, which lie one below the other.

    Returns:
        Stretches that cover all rows of both sides; None if no few of them do.
    """
    if sum(left) != sum(right) or float((partners >= 0).mean()) < _KNOWN:
        return None
    found: list[tuple[Stretch, ...]] = []
    for turn in (None, *_turns(partners)):
        runs = _runs(partners, turn, left, right)
        if runs is None:
            continue
        pieces = _pieces(runs, left, right)
        if pieces is not None:
            found.append(tuple(pieces))
        pieces = _pieces(_inverse(runs), right, left)
        if pieces is not None:
            found.append(tuple(map(_swapped, pieces)))
    return min(found, key=len, default=None)


def _runs(
    partners: Indices, turn: tuple[int, int] | None, left: Sequence[int], right: Sequence[int]
) -> list[_Run] | None:
    """Runs of a map, with gaps filled; None if there are too many, or two rows would be one."""
    turned = np.zeros(len(partners), dtype=bool)
    if turn is not None:
        found = _untwisted(partners, turn)
        if found is None:
            return None
        partners, turned = found
    partners = _filled(partners)
    if not np.array_equal(np.sort(partners), np.arange(len(partners))):
        return None
    breaks = (np.diff(partners) != 1) | (turned[1:] != turned[:-1])
    breaks |= np.isin(partners[1:], np.cumsum(left))
    starts = sorted({0, *(np.flatnonzero(breaks) + 1).tolist(), *np.cumsum(right)[:-1].tolist()})
    if 2 * len(starts) > len(partners) > 8:
        return None
    return [
        _Run(int(partners[a]), a, b - a, turn if turn is not None and turned[a] else (0, 0))
        for a, b in pairwise([*starts, len(partners)])
    ]


def _turns(partners: Indices) -> list[tuple[int, int]]:
    """Ways in which the right rows of a head may be cut, ``(2, dim / 2)`` or ``(dim / 2, 2)``."""
    steps = np.diff(partners)
    jumps = steps[(partners[1:] >= 0) & (partners[:-1] >= 0) & (steps != 1)]
    if not len(jumps):
        return []
    values, counts = np.unique(jumps, return_counts=True)
    often = values[np.argsort(-counts, kind="stable")]
    most = int(often[0])
    if most == 2:  # left has pairs, right has halves
        halves = [(3 - int(back)) // 2 for back in often[often < 0][:_CUTS]]
        return [(2, half) for half in halves if half > 1]
    if most > 2 and -(most - 1) in values:  # left has halves, right has pairs
        return [(most, 2)]
    return []


def _untwisted(partners: Indices, turn: tuple[int, int]) -> tuple[Indices, Flags] | None:
    """The map with heads in the order of the left side, and which rows were moved for it."""
    dim = turn[0] * turn[1]
    if len(partners) % dim:
        return None
    heads = partners.reshape(-1, dim)
    moved = heads.reshape(-1, *turn).transpose(0, 2, 1).reshape(-1, dim)
    better = _in_order(moved) > _in_order(heads)
    return np.where(better[:, None], moved, heads).reshape(-1), np.repeat(better, dim)


def _in_order(heads: Indices) -> Indices:
    """How many rows of each head follow the one before."""
    count: Indices = (np.diff(heads, axis=1) == 1).sum(axis=1)
    return count


def _filled(partners: Indices) -> Indices:
    """The map with rows between two of one run given to it."""
    places = np.arange(len(partners))
    offsets = partners - places
    known = partners >= 0
    # a row apart from neighbours that agree is noise
    odd = known[:-2] & known[2:] & (offsets[:-2] == offsets[2:]) & (offsets[1:-1] != offsets[:-2])
    known[1:-1] &= ~odd
    if known.all():
        return partners
    before = np.maximum.accumulate(np.where(known, places, -1))
    behind = np.minimum.accumulate(np.where(known, places, len(places))[::-1])[::-1]
    before = np.where(before < 0, behind, before)
    filled = places + offsets[before]
    values, counts = np.unique(filled, return_counts=True)
    wrong = ~known & (np.isin(filled, values[counts > 1]) | (filled >= len(places)))
    wrong &= behind < len(places)
    filled[wrong] = (places + offsets[np.minimum(behind, len(places) - 1)])[wrong]
    return np.asarray(filled, dtype=np.int64)


def _inverse(runs: Sequence[_Run]) -> list[_Run]:
    return sorted(
        (_Run(run.right, run.left, run.length, run.turn) for run in runs),
        key=lambda run: run.right,
    )


def _swapped(piece: Stretch) -> Stretch:
    """The stretch seen from the other side; the turn stays with the side that it is of."""
    left, right = piece.right_columns, piece.left_columns
    return Stretch(
        piece.right,
        piece.left,
        replace(left, turn=()),
        replace(right, turn=left.turn),
    )


def _pieces(
    runs: Sequence[_Run], left: Sequence[int], right: Sequence[int]
) -> list[Stretch] | None:
    """Runs that follow each other on the right and have one distance on the left, together."""
    found: list[Stretch] = []
    begins = np.cumsum([0, *left]), np.cumsum([0, *right])
    at = 0
    while at < len(runs):
        first = runs[at]
        places = [
            int(np.searchsorted(begin, start, side="right")) - 1
            for begin, start in zip(begins, (first.left, first.right), strict=True)
        ]
        ours, theirs = begins[0][places[0]], begins[1][places[1]]
        last = at + 1
        while last < len(runs) and _follows(runs, at, last, int(begins[1][places[1] + 1])):
            last += 1
        columns = _columns(first.left - int(ours), runs[at:last], left[places[0]])
        if columns is None and last > at + 1:
            last = at + 1
            columns = _columns(first.left - int(ours), runs[at:last], left[places[0]])
        if columns is None:
            return None
        width = sum(run.length for run in runs[at:last])
        turn = (width // (first.turn[0] * first.turn[1]), *first.turn) if first.turn[0] else ()
        theirs_columns = Columns(first.right - int(theirs), width, right[places[1]], turn=turn)
        found.append(Stretch(places[0], places[1], columns, theirs_columns))
        if len(found) > _MOST * max(len(left), len(right)):
            return None
        at = last
    return found


def _follows(runs: Sequence[_Run], first: int, at: int, end: int) -> bool:
    """True if a run goes on with the runs since the first one at their distance."""
    one, before, run = runs[first], runs[at - 1], runs[at]
    if run.length != one.length or run.turn != one.turn or run.right >= end:
        return False
    return run.left - before.left == runs[first + 1].left - one.left > 0


def _columns(start: int, runs: Sequence[_Run], total: int) -> Columns | None:
    """Runs of equal distance as columns of one projection."""
    length = runs[0].length
    if len(runs) == 1:
        return Columns(start, length, total) if start + length <= total else None
    distance = runs[1].left - runs[0].left
    if distance * len(runs) != total or start + length > distance:
        return None
    unit = gcd(gcd(start, length), distance)
    parts = (len(runs), distance // unit, unit)
    return Columns(start // unit, length // unit, total, parts)
