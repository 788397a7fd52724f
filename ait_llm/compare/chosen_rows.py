"""Rows of an engine for which other experts were chosen, where the scores lie too close to tell.

An engine's experts get the scores themselves and choose inside. Where all that they read agrees
and the scores of a row lie within rounding, another choice is as right as golden's. What was
computed of that token, and of those behind it in its request, is then held to golden no more; all
other rows are, and a comparison of them alone takes the place of one that failed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ait_llm.compare.near_choices import choice_of, in_rows, other_choices, picked
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.pair import Settings, compare_match
from ait_llm.core.comparison import Comparison, Verdict
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.match.model import Match
from ait_llm.match.views import shape_after
from ait_llm.program.schedule import Schedule

_SETTINGS = Settings(metrics=())
_LAYER = re.compile(r"^(?:.*\.)?layers\.\d+\.")


@dataclass(frozen=True, slots=True)
class _Tie:
    """A token for which other experts were chosen.

    Attributes:
        position: of the token in its request.
        experts: the module that chose; from what it returns on, the token differs.
        spreads: the module whose results are the first in which later tokens of the request may
            differ, too; empty where all are.
    """

    position: int
    experts: str
    spreads: str


@dataclass(frozen=True, slots=True)
class Excuses:
    """What becomes of the comparisons of a run that fail in such rows alone.

    Attributes:
        without_rows: reasons of those that have no other rows, by index.
        narrowed: comparisons of all other rows, each of which passed, by index.
        told: sentences that say which rows they are.
    """

    without_rows: Mapping[int, str] = field(default_factory=dict)
    narrowed: Mapping[int, Comparison] = field(default_factory=dict)
    told: Sequence[str] = ()


@dataclass(slots=True)
class OtherRows:
    """Tokens of one process that may not be held to golden any more.

    Attributes:
        settings: of comparisons of the other rows.
        ties: tokens for which other experts were chosen, by request.
    """

    settings: Settings = _SETTINGS
    ties: dict[str, list[_Tie]] = field(default_factory=dict)

    def excuse(self, values: RunValues, matches: Mapping[int, Match]) -> Excuses:
        """What is found out about the comparisons of a run that failed.

        Args:
            values: of the run; runs come in their order. What fails in such rows alone is settled
                there.
            matches: of the comparisons that failed, by their index.
        """
        schedule = values.run.schedule
        if schedule is None:
            return Excuses()
        self._inherit(schedule)
        places = [(request, position) for _, request, position in schedule.places()]
        reasons: dict[int, str] = {}
        narrowed: dict[int, Comparison] = {}
        told: list[str] = []
        for value in values.failed():
            failed = values.evidence[value].failed
            for index in failed:
                match = matches.get(index)
                experts = None if match is None else _experts(values, value, match)
                rows = None if match is None else _rows(match, schedule)
                if match is not None and experts is not None and rows is not None:
                    spots = [places[row] if row < len(places) else None for row in rows]
                    told += self._choose(values, value, match, experts, spots)
            if not self.ties or any(index not in matches for index in failed):
                continue
            left_out = self._left_out(values, value, places)
            rest = {index: _narrowed(matches[index], schedule, left_out) for index in failed}
            agreeing = self._agreeing(rest)
            if agreeing is None:
                continue
            without = [index for index in failed if index not in agreeing]
            reasons |= dict.fromkeys(without, "all of its rows follow from other experts")
            narrowed |= agreeing
            values.settle(value, agreeing)
        notes = [f"step {values.run.step}: {text}" for text in dict.fromkeys(told)]
        return Excuses(reasons, narrowed, notes)

    def _inherit(self, schedule: Schedule) -> None:
        """What a prefix cache has of such tokens, other requests read as well."""
        known = [tie for ties in self.ties.values() for tie in ties]
        for each in schedule.stretches:
            if each.request in self.ties:
                continue
            cached = [tie for tie in known if tie.position < each.cached]
            if cached:
                self.ties[each.request] = cached

    def _choose(
        self,
        values: RunValues,
        value: int,
        match: Match,
        experts: Operation,
        spots: Sequence[tuple[str, int] | None],
    ) -> Iterator[str]:
        """Look for other choices in what experts return; a sentence if there are any.

        Args:
            values: of the run.
            value: what they return.
            match: of it, or of a part of its rows.
            experts: they.
            spots: request and position of each row of the pair; None of padding.
        """
        thresholds = self._thresholds(values)
        left_out = [
            row
            for row, spot in enumerate(spots)
            if spot is None or self._differs(value, *spot, thresholds)
        ]
        new = [
            (spot, each)
            for each in other_choices(match, experts, left_out)
            if (spot := spots[each.row]) is not None
        ]
        for (request, position), _ in new:
            tie = _Tie(position, experts.name, _spreads(values, experts))
            self.ties.setdefault(request, []).append(tie)
        if new:
            (request, position), first = new[0]
            one, other = (", ".join(map(str, side)) for side in (first.golden, first.mine))
            yield (
                f"{experts.name}: {len(new)} rows chose other experts, token "
                f"{position} of request {request} {other} instead of {one}, whose scores are "
                f"{first.margin:.2g} apart, within rounding; it is not held to golden from there "
                "on, nor, from the next layer on, are those behind it in its request"
            )

    def _thresholds(self, values: RunValues) -> dict[str, int]:
        """The first value that a module of the run writes, of those that ties name."""
        names = {
            name for ties in self.ties.values() for t in ties for name in (t.experts, t.spreads)
        }
        found: dict[str, int] = {}
        for op, operation in enumerate(values.run.operations):
            if operation.name in names:
                for made in values.outputs(op):
                    found[operation.name] = min(made.number, found.get(operation.name, made.number))
        return found

    def _differs(
        self, value: int, request: str, position: int, thresholds: Mapping[str, int]
    ) -> bool:
        """True if a value may differ in the row of a token: what a run does not have is before."""
        for tie in self.ties.get(request, ()):
            name = tie.experts if position == tie.position else tie.spreads
            if position >= tie.position and value >= thresholds.get(name, 0):
                return True
        return False

    def _left_out(
        self, values: RunValues, value: int, places: Sequence[tuple[str, int]]
    ) -> set[int]:
        """Rows of the pass in which a value is not held to golden."""
        thresholds = self._thresholds(values)
        return {row for row, place in enumerate(places) if self._differs(value, *place, thresholds)}

    def _agreeing(self, pairs: Mapping[int, _Narrowed | None]) -> dict[int, Comparison] | None:
        """Comparisons of the pairs that have other rows; None unless each of them passes."""
        found = {}
        for index, pair in pairs.items():
            if pair is None:
                return None
            if pair.kept:
                result = pair.compared(self.settings)
                if result.verdict is not Verdict.PASS:
                    return None
                found[index] = result
        return found


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """A pair, the numbers of its rows that are held to golden, and how many there are in all."""

    match: Match
    kept: tuple[int, ...]
    count: int

    def compared(self, settings: Settings) -> Comparison:
        """The comparison of these rows."""
        result = compare_match(in_rows(self.match, self.kept), settings)
        if result.verdict is not Verdict.PASS:
            return result
        left = self.count - len(self.kept)
        text = f"without {left} of {self.count} rows, which follow from other experts"
        return replace(result, reason=text)


def _narrowed(match: Match, schedule: Schedule, left_out: Collection[int]) -> _Narrowed | None:
    """A pair in its other rows; None if it has only such, or where rows are not known."""
    rows = _rows(match, schedule)
    if rows is None:
        return None
    kept = tuple(
        number for number, row in enumerate(rows) if row < schedule.count and row not in left_out
    )
    return None if len(kept) == len(rows) else _Narrowed(match, kept, len(rows))


def _spreads(values: RunValues, experts: Operation) -> str:
    """The first module behind experts that may mix the rows of a request, as attention does."""
    layer = _LAYER.match(experts.name)
    behind = False
    for op, operation in enumerate(values.run.operations):
        if operation is experts:
            behind = layer is not None
        elif behind and layer is not None and values.is_leaf(op):
            is_outside = not operation.name.startswith(layer[0])
            if is_outside or "attention" in operation.type.lower():
                return operation.name
    return ""


def _experts(values: RunValues, value: int, match: Match) -> Operation | None:
    """The experts of mine that made a value, if what they read agrees with golden.

    What they return may be what the layer around them returns, too.
    """
    if match.mine.tensor.role != "out" or choice_of(match.golden.operation) is None:
        return None
    makers = [use.op for use in values.flow.values[value].uses if use.role == "out"]
    op = next((each for each in reversed(makers) if values.is_leaf(each)), None)
    if op is None:
        return None
    operation = values.run.operations[op]
    read = [values.flow.at(op, "in", tensor.index) for tensor in operation.inputs]
    known = [values.evidence.get(each.number) for each in read if each is not None]
    agrees = bool(known) and not any(each is not None and each.failed for each in known)
    return operation if agrees else None


def _rows(match: Match, schedule: Schedule) -> list[int] | None:
    """The row of the pass that each row of what is compared is; None where that is not known."""
    source = match.mine
    try:
        shape = source.tensor.shape
        count = shape_after(shape, source.views)[0] if shape else 0
    except (AitError, ValueError, IndexError):
        return None
    some = picked(source.views)
    is_last = bool(shape) and shape[0] == len(schedule.newest) < schedule.count
    if not is_last and (not shape or shape[0] < schedule.count):
        return None  # its first axis is no row of the pass
    every = list(schedule.newest) if is_last else list(range(shape[0]))
    try:
        rows = every if some is None else [every[row] for row in some]
    except IndexError:
        return None
    return rows if len(rows) == count else None
