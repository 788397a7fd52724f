"""The best pairing of two sequences that keeps the order of both.

Of long sequences that are much alike, only places near the diagonal can lie on a best path. A bound
of what is left to gain tells which; so the cost grows with the length and with how far the two are
apart, not with the product of the lengths, and the result is that of the whole table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]
_EQUAL = 1e-9  # sums of the same scores in another order
_ROUNDING = 1e-9  # of a bound, relative
_CLASSES = 24  # kinds of items that are counted one by one; what is rarer is counted together
_FIRST_LOSS, _FACTOR = 8.0, 4.0


@dataclass(frozen=True, slots=True)
class Step:
    """One pair of a best pairing.

    Attributes:
        row, column: places of the two items.
        others: columns with which the row is paired in other pairings that are as good.
    """

    row: int
    column: int
    others: tuple[int, ...] = ()


def best_steps(rows: Sequence[int], columns: Sequence[int], scores: _Floats) -> list[Step]:
    """Pair items so that the sum of their scores is the largest.

    Args:
        rows, columns: kind of each item.
        scores: of two kinds, ``-inf`` if items of them cannot be paired.
    """
    if not rows or not columns:
        return []
    table = _Table(np.asarray(rows), np.asarray(columns), scores)
    turned = _Table(table.rows[::-1], table.columns[::-1], scores)
    most = table.bound()
    rounding = _ROUNDING * max(1.0, most)
    loss = 0.0
    while True:
        least = most - loss - rounding
        ahead = table.sums(least)
        behind = None if ahead is None else turned.sums(least)
        if ahead is not None and behind is not None:
            return table.path(ahead, behind)
        loss = max(_FIRST_LOSS, loss * _FACTOR)


@dataclass(frozen=True, slots=True)
class _Row:
    """Sums of one row of the table, from a column on; -inf elsewhere."""

    start: int
    sums: _Floats

    def at(self, column: int) -> float:
        place = column - self.start
        return float(self.sums[place]) if 0 <= place < len(self.sums) else -np.inf

    def between(self, start: int, stop: int) -> _Floats:
        found = np.full(stop - start, -np.inf)
        low, high = max(start, self.start), min(stop, self.start + len(self.sums))
        if low < high:
            found[low - start : high - start] = self.sums[low - self.start : high - self.start]
        return found


class _Table:
    """Sums of scores of the first i rows against the first j columns, where they matter."""

    def __init__(self, rows: _Integers, columns: _Integers, scores: _Floats) -> None:
        self.rows = rows
        self.columns = columns
        self._scores = scores
        gains = np.maximum(scores, 0.0)
        left, right = _classes(scores, rows, columns)
        size = max(left.max(), right.max()) + 1
        self._row_gains = _sums_to_end(left[rows], gains.max(axis=1)[rows], size)
        self._column_gains = _sums_to_end(right[columns], gains.max(axis=0)[columns], size)

    def bound(self) -> float:
        """A sum that no pairing exceeds."""
        return float(self._gains(0, 0, 1)[0])

    def _gains(self, row: int, start: int, stop: int) -> _Floats:
        """What can be gained at most from a row and some columns on."""
        left: _Floats = np.minimum(self._row_gains[row], self._column_gains[start:stop])
        total: _Floats = left.sum(axis=1)
        return total

    def sums(self, least: float) -> list[_Row] | None:
        """All places that lie on a path of at least this sum; None if there is no such path."""
        found: list[_Row] = []
        row = _Row(0, np.zeros(1))
        for number in range(len(self.rows) + 1):
            start, sums = row.start, row.sums
            if number:
                scores = self._scores[self.rows[number - 1]]
                size = min(len(sums) + 1, len(self.columns) + 1 - start)
                fresh = np.full(size, -np.inf)
                fresh[: len(sums)] = sums
                behind = self.columns[start : start + size - 1]
                fresh[1:] = np.maximum(fresh[1:], sums[: size - 1] + scores[behind])
                sums = np.maximum.accumulate(fresh)
            cut = self._cut(number, start, sums, least)
            if cut is None:
                return None
            row = cut
            found.append(row)
        return found if row.start + len(row.sums) == len(self.columns) + 1 else None

    def _cut(self, number: int, start: int, sums: _Floats, least: float) -> _Row | None:
        """A row without what is too small at its ends; longer where columns may be skipped."""
        last = sums[-1]
        stop = start + len(sums)
        more = stop
        while more <= len(self.columns) and last + self._gains(number, more, more + 1)[0] >= least:
            more += 1
        if more > stop:
            sums = np.concatenate([sums, np.full(more - stop, last)])
        good = np.flatnonzero(sums + self._gains(number, start, start + len(sums)) >= least)
        if not len(good):
            return None
        return _Row(start + int(good[0]), sums[good[0] : good[-1] + 1])

    def path(self, ahead: list[_Row], behind: list[_Row]) -> list[Step]:
        """A best path, from the end, by pairs rather than by skipping rows, then columns."""
        i, j = len(self.rows), len(self.columns)
        total = ahead[i].at(j)
        steps = []
        while i and j:
            score = self._scores[self.rows[i - 1], self.columns[j - 1]]
            here = ahead[i].at(j)
            if score > 0 and here == ahead[i - 1].at(j - 1) + score:
                i, j = i - 1, j - 1
                steps.append(Step(i, j, self._others(i, j, total, ahead[i], behind)))
            elif here == ahead[i - 1].at(j):
                i -= 1
            else:
                j -= 1
        return steps[::-1]

    def _others(
        self, i: int, j: int, total: float, row: _Row, behind: list[_Row]
    ) -> tuple[int, ...]:
        """Other columns that a best path pairs with a row."""
        start, stop = row.start, min(row.start + len(row.sums), len(self.columns))
        if stop - start < 2:
            return ()
        scores = self._scores[self.rows[i], self.columns[start:stop]]
        size = len(self.columns)
        after = behind[len(self.rows) - i - 1].between(size - stop, size - start)[::-1]
        sums = row.sums[: stop - start] + scores + after
        fits = np.flatnonzero((scores > 0) & (sums >= total - _EQUAL)) + start
        return tuple(int(column) for column in fits if column != j)


def _classes(
    scores: _Floats, rows: _Integers, columns: _Integers
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Numbers of classes of kinds: kinds of different classes are never paired."""
    left = np.arange(scores.shape[0])
    right = np.full(scores.shape[1], -1)
    for column in range(scores.shape[1]):
        mates = np.flatnonzero(scores[:, column] > 0)
        if len(mates):
            joined = left[mates].min()
            left[np.isin(left, left[mates])] = joined
            right[column] = mates[0]
    right = np.where(right >= 0, left[right], scores.shape[0])
    counts = Counter(left[rows].tolist()) + Counter(right[columns].tolist())
    number = {each: place for place, (each, _) in enumerate(counts.most_common(_CLASSES))}
    rest = len(number)

    def numbered(kinds: NDArray[Any]) -> NDArray[Any]:
        return np.array([number.get(each, rest) for each in kinds.tolist()])

    return numbered(left), numbered(right)


def _sums_to_end(classes: NDArray[Any], gains: _Floats, size: int) -> _Floats:
    """For each place and class, what the items from there on may gain."""
    found = np.zeros((len(classes) + 1, size))
    found[np.arange(len(classes)), classes] = gains
    sums: _Floats = np.cumsum(found[::-1], axis=0)[::-1]
    return sums
