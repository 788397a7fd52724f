"""The best ordered pairing, against the whole table of sums."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from ait_llm.match.programs.ordered import Step, best_steps

_SCORES = (-np.inf, -np.inf, -np.inf, 10.0, 6.0, 3.0, 10 / 3, 9.0, -1.0, 0.0)


def _table(scores: list[list[float]]) -> list[list[float]]:
    best = [[0.0] * (len(scores[0]) + 1) for _ in range(len(scores) + 1)]
    for i, row in enumerate(scores):
        for j, score in enumerate(row):
            best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], best[i][j] + score)
    return best


def _expected(rows: list[int], columns: list[int], kinds: NDArray[np.float64]) -> list[Step]:
    """The same without a bound: every place of the table, from both ends."""
    scores = [[float(kinds[a, b]) for b in columns] for a in rows]
    ahead = _table(scores)
    back = _table([row[::-1] for row in scores[::-1]])
    i, j = len(rows), len(columns)
    total = ahead[i][j]
    steps = []
    while i and j:
        if scores[i - 1][j - 1] > 0 and ahead[i][j] == ahead[i - 1][j - 1] + scores[i - 1][j - 1]:
            i, j = i - 1, j - 1
            others = tuple(
                k
                for k in range(len(columns))
                if k != j
                and scores[i][k] > 0
                and ahead[i][k] + scores[i][k] + back[len(rows) - i - 1][len(columns) - k - 1]
                >= total - 1e-9
            )
            steps.append(Step(i, j, others))
        elif ahead[i][j] == ahead[i - 1][j]:
            i -= 1
        else:
            j -= 1
    return steps[::-1]


@pytest.mark.parametrize("seed", range(400))
def test_it_is_that_of_the_whole_table(seed: int) -> None:
    chosen = random.Random(seed)
    size = chosen.randint(1, 6), chosen.randint(1, 6)
    kinds = np.array([[chosen.choice(_SCORES) for _ in range(size[1])] for _ in range(size[0])])
    rows = [chosen.randrange(size[0]) for _ in range(chosen.randint(1, 30))]
    columns = [chosen.randrange(size[1]) for _ in range(chosen.randint(1, 30))]
    if seed % 2:  # nearly the same sequence
        columns = [min(kind, size[1] - 1) for kind in rows]
        columns[chosen.randrange(len(columns))] = 0
    assert best_steps(rows, columns, kinds) == _expected(rows, columns, kinds)


def test_nothing_is_paired_with_nothing() -> None:
    assert best_steps([], [0], np.ones((1, 1))) == []
    assert best_steps([0], [], np.ones((1, 1))) == []


def test_long_sequences_that_are_much_alike_need_no_whole_table() -> None:
    """The whole table of these would have 4 * 10 ** 8 places."""
    rows = [number % 7 for number in range(20_000)]
    scores = np.where(np.eye(7) > 0, 10.0, -np.inf)
    steps = best_steps(rows, rows[:5] + rows[7:], scores)
    assert len(steps) == len(rows) - 2
    assert steps[-1] == Step(len(rows) - 1, len(rows) - 3)
