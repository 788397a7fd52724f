"""Aligns the units of two blocks: the best pairing that keeps the order of both.

Projections that read the same value are aligned together, because either side may compute them as
one (``fuse``). Every pair is compared by what it does, its widths, and what reads its result; a
pair is certain if no alignment of equal score pairs it otherwise, or if its weights are equal and
those of the others are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ait_llm.match.programs.fuse import Share, columns_of_all, share
from ait_llm.match.programs.groups import Group, groups, projections, widths_of
from ait_llm.match.programs.ordered import Step, best_steps
from ait_llm.match.programs.owners import Owners
from ait_llm.match.programs.rank_columns import are_several, columns_of_rank, share_of_rank
from ait_llm.match.programs.shards import portion_of
from ait_llm.match.programs.weight_rows import are_equal, digest_of
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role, is_rms
from ait_llm.program.token_ids import stated_vocabulary, vocabulary

Forms = tuple[int, ...]
"""Groups of a block, by numbers for all that their scores depend on."""
_Form = tuple[Role, int, int, tuple[object, ...], frozenset[int]]

_NEVER = float("-inf")
_ANCHORED = 20.0  # more than any two that are only alike


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


class Aligner:
    """Pairs units of two sides, block by block.

    Args:
        left, right: the sides.
        same_ids: embeddings of both sides that are looked up by the same ids.
        known: operations that answer each other already, right by left. They pair with nothing
            else.
    """

    def __init__(
        self,
        left: Program,
        right: Program,
        same_ids: set[tuple[int, int]] | None = None,
        known: Mapping[int, int] | None = None,
    ) -> None:
        self._left = left
        self._right = right
        self._portion = portion_of(left.run, right.run)
        self._owners = Owners(left, right)
        self._same_ids = same_ids or set()
        known = known or {}
        self._known = {op: op for op in known}, {other: op for op, other in known.items()}
        # groups by all that their scores depend on, of the left side, then of the right
        self._forms: tuple[dict[_Form, int], dict[_Form, int]] = ({}, {})
        self._examples: tuple[list[Group], list[Group]] = ([], [])
        self._scores: dict[tuple[int, int], float] = {}
        self._steps: dict[tuple[Forms, Forms], list[Step]] = {}
        self._equal: dict[tuple[int, int], bool] = {}

    def align(self, left: Sequence[Unit], right: Sequence[Unit]) -> list[Pair]:
        """The pairs of one block."""
        rows, columns = self._grouped(left, right)
        aligned = self._aligned(self._forms_of(rows, 0), self._forms_of(columns, 1))
        steps = self._swapped(rows, columns, self._told_by_weights(rows, columns, aligned))
        return [
            Pair(
                rows[step.row],
                columns[step.column],
                self._share(rows[step.row], columns[step.column]),
                tuple(columns[other][0].op for other in step.others),
            )
            for step in self._without_rivals(rows, columns, steps)
        ]

    def _grouped(
        self, left: Sequence[Unit], right: Sequence[Unit]
    ) -> tuple[list[Group], list[Group]]:
        """The groups of a block, or its units where each projection has its own counterpart.

        Experts that are given the same row, the only one of a step, read the same value by chance.
        """
        rows, columns = groups(self._left, left), groups(self._right, right)
        if len(rows) - len(left) != len(columns) - len(right) and self._are_in_order(left, right):
            return [(unit,) for unit in left], [(unit,) for unit in right]
        return rows, columns

    def _are_in_order(self, left: Sequence[Unit], right: Sequence[Unit]) -> bool:
        """True for as many projections of the same widths, most of which have the same weights."""
        ours, theirs = projections(left), projections(right)
        if [widths_of(unit) for unit in ours] != [widths_of(unit) for unit in theirs]:
            return False
        pairs = zip(ours, theirs, strict=True)
        equal = sum(self.has_equal_weights((one,), (other,)) for one, other in pairs)
        return equal > len(ours) / 2

    def _without_rivals(
        self, rows: Sequence[Group], columns: Sequence[Group], steps: Sequence[Step]
    ) -> Iterator[Step]:
        """Without tables of which one that has no partner fits the same one as well."""
        paired = {step.row for step in steps}, {step.column for step in steps}
        ours = [each for n, each in enumerate(rows) if n not in paired[0] and _is_table(each)]
        theirs = [each for n, each in enumerate(columns) if n not in paired[1] and _is_table(each)]
        for step in steps:
            row, column = rows[step.row], columns[step.column]
            score = self.score(row, column)
            rivals = [self.score(each, column) for each in ours]
            rivals += [self.score(row, each) for each in theirs]
            if max(rivals, default=_NEVER) < score:
                yield step

    def _told_by_weights(
        self, rows: Sequence[Group], columns: Sequence[Group], steps: Sequence[Step]
    ) -> Iterator[Step]:
        """Where several groups fit, the only one with the same weights, if nothing else has it."""
        taken = {step.column for step in steps}
        for step in steps:
            free = [step.column, *(other for other in step.others if other not in taken)]
            equal = [
                other
                for other in ((step.column, *step.others) if step.others else ())
                if self.has_equal_weights(rows[step.row], columns[other])
            ]
            if len(equal) == 1 and equal[0] in free:
                taken.add(equal[0])
                yield replace(step, column=equal[0], others=())
            else:
                yield step

    def _swapped(
        self, rows: Sequence[Group], columns: Sequence[Group], steps: Iterable[Step]
    ) -> list[Step]:
        """Norms and tables that one side reads in another order: those of queries and keys.

        The order of operators that do not read each other is the runtime's own. Those whose weights
        differ are exchanged where each has the weight of just one of the others.
        """
        found = list(steps)
        unlike = [
            step
            for step in found
            if rows[step.row][0].role is columns[step.column][0].role
            and rows[step.row][0].role in (Role.NORM, Role.EMBEDDING)
            and not self.has_equal_weights(rows[step.row], columns[step.column])
        ]
        equal = {
            step: [
                other.column
                for other in unlike
                if self.has_equal_weights(rows[step.row], columns[other.column])
                and self.score(rows[step.row], columns[other.column]) > 0
            ]
            for step in unlike
        }
        moved = {step: of[0] for step, of in equal.items() if len(of) == 1}
        if len(set(moved.values())) < len(moved) or {s.column for s in moved} != {*moved.values()}:
            return found
        return [
            replace(step, column=moved[step], others=()) if step in moved else step
            for step in found
        ]

    def has_equal_weights(self, left: Group, right: Group) -> bool:
        """True if the first units of two groups have the same weight."""
        ops = left[0].op, right[0].op
        if ops not in self._equal:
            ours = self._left.parameter(left[0], "weight")
            theirs = self._right.parameter(right[0], "weight")
            self._equal[ops] = ours is not None and theirs is not None and are_equal(ours, theirs)
        return self._equal[ops]

    def digests(self, units: Sequence[Unit], *, of_left: bool) -> set[bytes]:
        """The weights of the projections of a block, a few bytes each."""
        side = self._left if of_left else self._right
        weights = (side.parameter(each, "weight") for each in units if each.role is Role.LINEAR)
        return {found for each in weights if each is not None and (found := digest_of(each))}

    def forms(self, units: Sequence[Unit], *, of_left: bool) -> Forms:
        """What alignment sees of a block: blocks of equal forms are aligned alike."""
        side = self._left if of_left else self._right
        return self._forms_of(groups(side, units), 0 if of_left else 1)

    def count(self, left: Forms, right: Forms) -> int:
        """How many right units of two blocks have a partner."""
        found = self._aligned(left, right)
        return sum(len(self._examples[1][right[step.column]]) for step in found)

    def _forms_of(self, found: Sequence[Group], place: int) -> Forms:
        known, examples = self._forms[place], self._examples[place]
        forms = []
        for group in found:
            form = known.setdefault(self._form(group, place), len(known))
            if form == len(examples):
                examples.append(group)
            forms.append(form)
        return tuple(forms)

    def _form(self, group: Group, place: int) -> _Form:
        """All that the score of a group depends on."""
        side, unit = (self._right if place else self._left), group[0]
        what: tuple[object, ...] = ()
        if unit.role is Role.LINEAR:
            is_rank = self._portion is not None
            columns = (columns_of_rank if is_rank else columns_of_all)(side, group)
            what = (
                tuple(each.fan_out for each in group),
                tuple((column.purpose, column.width) for column in columns),
                is_rank and are_several(side, group),
            )
        elif unit.role in (Role.NORM, Role.UNKNOWN):
            what = (self._is_rms(side, unit), _width_of_readers(side, unit))
        elif unit.role is Role.EMBEDDING and (self._same_ids or self._has_rivals):
            what = (unit.op,)
        what = (*what, self._owners.paths(place, unit))
        return unit.role, unit.fan_in, unit.fan_out, what, self._anchors(group, place)

    def _anchors(self, group: Group, place: int) -> frozenset[int]:
        """Left operations that are among a group, or answer one of it, as is known already."""
        known = self._known[place]
        return frozenset(known[unit.op] for unit in group if unit.op in known)

    def _aligned(self, left: Forms, right: Forms) -> list[Step]:
        """Places of the pairs of two blocks; those out of order last."""
        if (left, right) not in self._steps:
            rows, columns = sorted(set(left)), sorted(set(right))
            scores = np.array([[self._score(a, t) for t in columns] for a in rows], dtype=float)
            row = {form: place for place, form in enumerate(rows)}
            column = {form: place for place, form in enumerate(columns)}
            ours, theirs = [row[each] for each in left], [column[each] for each in right]
            found = best_steps(ours, theirs, scores)
            self._steps[left, right] = found + _out_of_order(ours, theirs, scores, found)
        return self._steps[left, right]

    def _score(self, left: int, right: int) -> float:
        """The score of groups of two forms."""
        if (left, right) not in self._scores:
            ours, theirs = self._examples[0][left], self._examples[1][right]
            self._scores[left, right] = self.score(ours, theirs)
        return self._scores[left, right]

    def score(self, left: Group, right: Group) -> float:
        """How well two groups fit; ``-inf`` if they cannot be the same."""
        a, t = left[0], right[0]
        anchors = self._anchors(left, 0), self._anchors(right, 1)
        if any(anchors):
            return _ANCHORED if anchors[0] & anchors[1] and a.role is t.role else _NEVER
        if self._owners.are_apart(a, t):
            return _NEVER
        if a.role is not t.role:
            return self._score_of_unknown(a, t)
        if a.role is Role.LINEAR:
            return self._score_linear(left, right)
        if not self._same(a.fan_out, t.fan_out) or not self._same(a.fan_in, t.fan_in):
            return _NEVER
        score = 6.0
        if a.role is Role.NORM:
            score += 1.0 if self._is_rms(self._left, a) == self._is_rms(self._right, t) else -2.0
            score += self._score_of_readers(a, t)
        if a.role is Role.EMBEDDING and self._same_ids:
            score += 3.0 if (a.op, t.op) in self._same_ids else -3.0
        if a.role is Role.EMBEDDING and self._has_rivals:
            ours, theirs = self._left.table(a), self._right.table(t)
            if ours is not None and theirs is not None and are_equal(ours, theirs):
                score += 1.0
        return score

    @cached_property
    def _has_rivals(self) -> bool:
        """True if several tables of a side are of one width, so that their rows have to tell."""
        for side in (self._left, self._right):
            widths = [unit.fan_out for unit in side.units if unit.role is Role.EMBEDDING]
            if len(set(widths)) < len(widths):
                return True
        return False

    def _score_linear(self, left: Group, right: Group) -> float:
        if not self._same(left[0].fan_in, right[0].fan_in):
            return _NEVER
        shares = self._share(left, right)
        if not shares:
            return _NEVER
        shared = sum(item.width for item in shares)
        widths = sum(u.fan_out for u in left), sum(u.fan_out for u in right)
        whole = max(widths) if self._portion is None else min(widths)
        return 10.0 * shared / max(whole, 1)

    def _share(self, left: Group, right: Group) -> tuple[Share, ...]:
        """Which columns of two groups are the same."""
        if self._portion is not None:
            return share_of_rank(self._left, self._right, left, right, self._portion)
        found = share(self._left, self._right, left, right)
        if found or len(left) > 1 or len(right) > 1 or self._vocabularies is None:
            return found
        if (left[0].fan_out, right[0].fan_out) != self._vocabularies:
            return ()
        return (Share(left[0], right[0], 0, 0, min(self._vocabularies)),)

    @cached_property
    def _vocabularies(self) -> tuple[int, int] | None:
        """Rows of both tables of tokens, where one was filled up to more than there are tokens."""
        runs = self._left.run, self._right.run
        left, right = (vocabulary(run) or stated_vocabulary(run) for run in runs)
        return (left, right) if left and right and left != right else None

    def _same(self, a: int, b: int) -> bool:
        """True for equal widths, or a rank's share of one; or if one of them is unknown."""
        return a == b or not a or not b or self._is_share(a, b)

    def _is_share(self, a: int, b: int) -> bool:
        return self._portion is not None and self._portion.stretch(a, b) is not None

    def _score_of_unknown(self, a: Unit, t: Unit) -> float:
        if t.role is not Role.UNKNOWN or a.role in (Role.EMBEDDING, Role.EXPERTS, Role.GATED):
            return _NEVER
        if not self._same(a.fan_out, t.fan_out) or not self._same(a.fan_in, t.fan_in):
            return _NEVER
        if a.role is not Role.NORM:
            return 4.0
        mine, theirs = _width_of_readers(self._left, a), _width_of_readers(self._right, t)
        return 7.0 if mine == theirs or self._is_share(mine, theirs) else 3.0

    @staticmethod
    def _is_rms(side: Program, unit: Unit) -> bool:
        return is_rms(side.operations[unit.op])

    def _score_of_readers(self, a: Unit, t: Unit) -> float:
        """Two norms with different readers are different norms."""
        mine, theirs = _width_of_readers(self._left, a), _width_of_readers(self._right, t)
        if not mine or not theirs:
            return 0.0
        return 3.0 if mine == theirs or self._is_share(mine, theirs) else -1.0


def _is_table(group: Group) -> bool:
    return group[0].role is Role.EMBEDDING


def _width_of_readers(side: Program, unit: Unit) -> int:
    if unit.result is None:
        return 0
    readers = {use.op for use in unit.result.reads}
    linear = [side.unit_of[op] for op in sorted(readers) if op in side.unit_of]
    return sum(reader.fan_out for reader in linear if reader.role is Role.LINEAR)


def _out_of_order(
    rows: Sequence[int], columns: Sequence[int], scores: NDArray[np.float64], done: Sequence[Step]
) -> list[Step]:
    """Pairs out of order: each fits only the other, and what reads them has been paired."""
    paired = {step.row for step in done}, {step.column for step in done}
    ours = [(i, kind) for i, kind in enumerate(rows) if i not in paired[0]]
    theirs = {kind: j for j, kind in enumerate(columns) if j not in paired[1]}
    left = Counter(kind for _, kind in ours)
    right = Counter(kind for j, kind in enumerate(columns) if j not in paired[1])
    found = []
    for i, kind in ours:
        mates = [other for other in right if scores[kind, other] > 0]
        if len(mates) != 1 or right[mates[0]] != 1:
            continue
        if sum(number for each, number in left.items() if scores[each, mates[0]] > 0) == 1:
            found.append(Step(i, theirs[mates[0]]))
    return found
