"""Aligns the units of two blocks: the best pairing that keeps the order of both.

Projections that read the same value are aligned together, because either side may compute them as
one (``fuse``). Every pair is compared by what it does, its widths, and what reads its result; a
pair is certain if no alignment of equal score pairs it otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ait_llm.match.programs.fuse import Share, same_family, share
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role, is_rms

Group = tuple[Unit, ...]

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Pair:
    """Units that answer each other, or groups of projections of which parts do.

    Attributes:
        golden, mine: see :class:`Pair`.
        shares: which columns of which results are the same; empty for all of the only results.
        alternatives: operations of the right side that fit as well.
    """

    left: Group
    right: Group
    shares: tuple[Share, ...]
    alternatives: tuple[int, ...] = ()


def groups(side: Program, units: Sequence[Unit]) -> list[Group]:
    """Units one by one, but projections of the same value together."""
    found: list[list[Unit]] = []
    for unit in units:
        mate = next(
            (g for g in found if _reads_same(side, g[-1], unit, is_last=g is found[-1])), None
        )
        if unit.role is Role.LINEAR and mate is not None:
            mate.append(unit)
        else:
            found.append([unit])
    return [tuple(group) for group in found]


def _reads_same(side: Program, earlier: Unit, unit: Unit, *, is_last: bool) -> bool:
    if earlier.role is not Role.LINEAR or unit.role is not Role.LINEAR:
        return False
    if earlier.source is not None and earlier.source is unit.source:
        return True
    # Without values to tell: neighbours that take the same width, for one purpose by their names.
    known = any(u.source is not None and len(u.source.uses) > 1 for u in (earlier, unit))
    if known or not is_last or earlier.fan_in != unit.fan_in:
        return False
    if side.is_packed:
        return unit.op == earlier.op + 1
    return same_family(side.operations[earlier.op].name, side.operations[unit.op].name)


class Aligner:
    """Pairs units of two sides, block by block."""

    def __init__(
        self, left: Program, right: Program, same_ids: set[tuple[int, int]] | None = None
    ) -> None:
        self._left = left
        self._right = right
        self._same_ids = same_ids or set()

    def align(self, left: Sequence[Unit], right: Sequence[Unit]) -> list[Pair]:
        """The pairs of one block."""
        rows, columns = groups(self._left, left), groups(self._right, right)
        scores = [[self.score(a, t) for t in columns] for a in rows]
        ahead, behind = _best(scores), _best_behind(scores)
        total = ahead[-1][-1]
        pairs = []
        for i, j in _path(scores, ahead):
            others = [
                k
                for k in range(len(columns))
                if k != j
                and scores[i][k] > 0
                and ahead[i][k] + scores[i][k] + behind[i + 1][k + 1] >= total - 1e-9
            ]
            pairs.append(
                Pair(
                    rows[i],
                    columns[j],
                    share(self._left, self._right, rows[i], columns[j]),
                    tuple(columns[k][0].op for k in others),
                )
            )
        return pairs + self._out_of_order(rows, columns, scores, pairs)

    def _out_of_order(
        self,
        rows: list[Group],
        columns: list[Group],
        scores: list[list[float]],
        pairs: list[Pair],
    ) -> list[Pair]:
        """Pairs out of order: each fits only the other, and what reads them has been paired."""
        done = {id(p.left) for p in pairs} | {id(p.right) for p in pairs}
        mine = [i for i, row in enumerate(rows) if id(row) not in done]
        theirs = [j for j, column in enumerate(columns) if id(column) not in done]
        found = []
        for i in mine:
            fits = [j for j in theirs if scores[i][j] > 0]
            if len(fits) != 1 or sum(scores[k][fits[0]] > 0 for k in mine) != 1:
                continue
            shares = share(self._left, self._right, rows[i], columns[fits[0]])
            found.append(Pair(rows[i], columns[fits[0]], shares))
        return found

    def score(self, left: Group, right: Group) -> float:
        """How well two groups fit; ``-inf`` if they cannot be the same."""
        a, t = left[0], right[0]
        if a.role is not t.role:
            return self._score_of_unknown(a, t)
        if a.role is Role.LINEAR:
            return self._score_linear(left, right)
        if not _same(a.fan_out, t.fan_out) or not _same(a.fan_in, t.fan_in):
            return _NEVER
        score = 6.0
        if a.role is Role.NORM:
            score += 1.0 if self._is_rms(self._left, a) == self._is_rms(self._right, t) else -2.0
            score += self._score_of_readers(a, t)
        if a.role is Role.EMBEDDING and self._same_ids:
            score += 3.0 if (a.op, t.op) in self._same_ids else -3.0
        return score

    def _score_linear(self, left: Group, right: Group) -> float:
        if not _same(left[0].fan_in, right[0].fan_in):
            return _NEVER
        shares = share(self._left, self._right, left, right)
        if not shares:
            return _NEVER
        shared = sum(item.width for item in shares)
        whole = max(sum(u.fan_out for u in left), sum(u.fan_out for u in right))
        return 10.0 * shared / max(whole, 1)

    def _score_of_unknown(self, a: Unit, t: Unit) -> float:
        if t.role is not Role.UNKNOWN or a.role in (Role.EMBEDDING, Role.EXPERTS, Role.GATED):
            return _NEVER
        if not _same(a.fan_out, t.fan_out) or not _same(a.fan_in, t.fan_in):
            return _NEVER
        if a.role is not Role.NORM:
            return 4.0
        mine, theirs = _width_of_readers(self._left, a), _width_of_readers(self._right, t)
        return 7.0 if mine == theirs else 3.0

    @staticmethod
    def _is_rms(side: Program, unit: Unit) -> bool:
        return is_rms(side.operations[unit.op])

    def _score_of_readers(self, a: Unit, t: Unit) -> float:
        """Two norms with different readers are different norms."""
        mine, theirs = _width_of_readers(self._left, a), _width_of_readers(self._right, t)
        if not mine or not theirs:
            return 0.0
        return 3.0 if mine == theirs else -1.0


def _width_of_readers(side: Program, unit: Unit) -> int:
    if unit.result is None:
        return 0
    readers = {use.op for use in unit.result.reads}
    linear = [side.unit_of[op] for op in sorted(readers) if op in side.unit_of]
    return sum(reader.fan_out for reader in linear if reader.role is Role.LINEAR)


def _same(a: int, b: int) -> bool:
    """Equal, or one of them unknown."""
    return a == b or not a or not b


def _best(scores: list[list[float]]) -> list[list[float]]:
    """``best[i][j]``: score of the first i rows against the first j columns."""
    columns = len(scores[0]) if scores else 0
    best = [[0.0] * (columns + 1) for _ in range(len(scores) + 1)]
    for i, row in enumerate(scores):
        for j, score in enumerate(row):
            best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], best[i][j] + score)
    return best


def _best_behind(scores: list[list[float]]) -> list[list[float]]:
    """``best[i][j]``: score of the rows from i on against the columns from j on."""
    turned = [list(reversed(row)) for row in reversed(scores)]
    return [list(reversed(row)) for row in reversed(_best(turned))]


def _path(scores: list[list[float]], best: list[list[float]]) -> list[tuple[int, int]]:
    i, j = len(scores), len(scores[0]) if scores else 0
    pairs = []
    while i and j:
        score = scores[i - 1][j - 1]
        if score > 0 and best[i][j] == best[i - 1][j - 1] + score:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif best[i][j] == best[i - 1][j]:
            i -= 1
        else:
            j -= 1
    return pairs[::-1]
