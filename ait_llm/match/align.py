"""Alignment of two sequences in order, and whether it is the only best one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_MAX_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """Two items of an alignment.

    Attributes:
        first, second: their places.
        rivals: other places of the first sequence that the second item could as well belong to.
        certain: True if every best alignment pairs the two.
    """

    first: int
    second: int
    rivals: tuple[int, ...]
    certain: bool


def align_sequences(
    first: int, second: int, score: Callable[[int, int], int]
) -> tuple[int, list[AlignedPair]]:
    """Pair items of two sequences, in order, so that the sum of scores is largest.

    Needleman and Wunsch with gaps that cost nothing, run from both ends: a pair is in some best
    alignment if what stands before it, the pair, and what stands behind it add up to the best.

    Args:
        first, second: lengths of the sequences.
        score: of a pair; 0 if it cannot be one, never negative.

    Returns:
        The best sum and one best alignment.
    """
    if first * second > _MAX_CELLS:
        return _align_ends(first, second, score)
    scores = [[score(i, j) for j in range(second)] for i in range(first)]
    before = [[0] * (second + 1) for _ in range(first + 1)]
    for i in range(first):
        row, above, worth = before[i + 1], before[i], scores[i]
        for j in range(second):
            best = above[j + 1] if above[j + 1] > row[j] else row[j]
            if worth[j] and above[j] + worth[j] > best:
                best = above[j] + worth[j]
            row[j + 1] = best
    behind = [[0] * (second + 1) for _ in range(first + 1)]
    for i in reversed(range(first)):
        row, below, worth = behind[i], behind[i + 1], scores[i]
        for j in reversed(range(second)):
            best = below[j] if below[j] > row[j + 1] else row[j + 1]
            if worth[j] and below[j + 1] + worth[j] > best:
                best = below[j + 1] + worth[j]
            row[j] = best
    total = before[first][second]
    options = [
        {
            j
            for j in range(second)
            if scores[i][j] and before[i][j] + scores[i][j] + behind[i + 1][j + 1] == total
        }
        for i in range(first)
    ]
    wanted_by: list[list[int]] = [[] for _ in range(second)]
    for i, places in enumerate(options):
        for j in places:
            wanted_by[j].append(i)
    pairs = []
    i = j = 0
    while i < first and j < second:
        if j in options[i] and before[i][j] + scores[i][j] + behind[i + 1][j + 1] == total:
            rivals = tuple(other for other in wanted_by[j] if other != i)
            certain = len(options[i]) == 1 and not rivals
            certain = certain and not _may_stay_alone(i, j, before, behind, total)
            pairs.append(AlignedPair(i, j, rivals, certain))
            i, j = i + 1, j + 1
        elif before[i][j] + behind[i + 1][j] == total:
            i += 1
        else:
            j += 1
    return total, pairs


def _may_stay_alone(
    i: int, j: int, before: list[list[int]], behind: list[list[int]], total: int
) -> bool:
    """True if a best alignment leaves out item i of the first or item j of the second sequence."""
    return any(
        before[i][place] + behind[i + 1][place] == total for place in range(len(before[i]))
    ) or any(before[place][j] + behind[place][j + 1] == total for place in range(len(before)))


def _align_ends(
    first: int, second: int, score: Callable[[int, int], int]
) -> tuple[int, list[AlignedPair]]:
    """Sequences too long for a table: what agrees from both ends, none of it certain."""
    head = 0
    while head < min(first, second) and score(head, head):
        head += 1
    tail = 0
    while tail < min(first, second) - head and score(first - 1 - tail, second - 1 - tail):
        tail += 1
    places = [(place, place) for place in range(head)]
    places += [(first - back, second - back) for back in range(tail, 0, -1)]
    certain = first == second == len(places)
    total = sum(score(i, j) for i, j in places)
    return total, [AlignedPair(i, j, (), certain) for i, j in places]
