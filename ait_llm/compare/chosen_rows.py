"""Rows of an engine for which other experts were chosen, where the scores lie too close to tell.

An engine's experts get the scores themselves and choose inside. Where all that they read agrees
and the scores of a row lie within rounding, another choice is as right as golden's. What was
computed of that token, and of those behind it in its request, is then held to golden no more; all
other rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.pair import Settings, compare_match
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.tolerance import tolerance_for
from ait_llm.match.model import Match
from ait_llm.match.views import Rows, View, shape_after
from ait_llm.program.schedule import Schedule

_SETTINGS = Settings(metrics=())
_ROUNDINGS = 2
"""Both sides' scores may be off, each by what its type permits."""


@dataclass(slots=True)
class OtherRows:
    """Tokens of one process that may not be held to golden any more.

    Attributes:
        begins: position of the first of them, by request.
    """

    begins: dict[str, int] = field(default_factory=dict)

    def excuse(
        self, values: RunValues, matches: Mapping[int, Match]
    ) -> tuple[dict[int, str], list[str]]:
        """Comparisons of a run that fail in such rows alone, with the reason, and what to tell."""
        schedule = values.run.schedule
        if schedule is None:
            return {}, []
        self._inherit(schedule)
        places = [(request, position) for _, request, position in schedule.places()]
        reasons: dict[int, str] = {}
        told: list[str] = []
        for value in values.failed():
            failed = values.evidence[value].failed
            for index in failed:
                match = matches.get(index)
                experts = None if match is None else _experts(values, value, match)
                if match is not None and experts is not None:
                    told += self._choose(match, experts, schedule, places)
            if self.begins and all(
                index in matches and self._holds_elsewhere(matches[index], schedule, places)
                for index in failed
            ):
                reason = "only rows for which other experts were chosen differ"
                reasons |= dict.fromkeys(values.forget(value), reason)
        return reasons, [f"step {values.run.step}: {text}" for text in dict.fromkeys(told)]

    def _inherit(self, schedule: Schedule) -> None:
        """What a prefix cache has of such tokens, other requests read as well."""
        for each in schedule.stretches:
            if any(begin < each.cached for begin in self.begins.values()):
                self.begins.setdefault(each.request, each.first)

    def _choose(
        self, match: Match, experts: Operation, schedule: Schedule, places: list[tuple[str, int]]
    ) -> Iterator[str]:
        """Look for other choices in what experts return; a sentence if there are any."""
        rows = _rows(match, schedule)
        found = None if rows is None else _other_choices(match, experts)
        if not rows or not found:
            return
        new = [(places[rows[each.row]], each) for each in found if rows[each.row] < len(places)]
        for (request, position), _ in new:
            self.begins[request] = min(position, self.begins.get(request, position))
        if new:
            (request, position), first = new[0]
            one, other = (", ".join(map(str, side)) for side in (first.golden, first.mine))
            yield (
                f"{experts.name}: {len(new)} rows chose other experts, token "
                f"{position} of request {request} {other} instead of {one}, whose scores are "
                f"{first.margin:.2g} apart, within rounding; it and the tokens behind it are not "
                "held to golden from there on"
            )

    def _holds_elsewhere(
        self, match: Match, schedule: Schedule, places: list[tuple[str, int]]
    ) -> bool:
        """True if a pair that fails agrees in all other rows, or has none."""
        rows = _rows(match, schedule)
        if rows is None:
            return False
        kept = tuple(
            number
            for number, row in enumerate(rows)
            if row < len(places) and places[row][1] < self.begins.get(places[row][0], 1 << 62)
        )
        if len(kept) == len(rows):
            return False
        if not kept:
            return True
        return _agrees_in(match, kept)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Another choice in a row of what is compared, and how far the scores are apart."""

    row: int
    golden: tuple[int, ...]
    mine: tuple[int, ...]
    margin: float
    is_tied: bool = False
    """Scores are the same number: which was chosen cannot be read off them."""


def _agrees_in(match: Match, rows: tuple[int, ...]) -> bool:
    """True if a pair agrees in these of its rows."""
    some = Rows(0, rows)
    smaller = replace(
        match,
        golden=replace(match.golden, views=(*match.golden.views, some)),
        mine=replace(match.mine, views=(*match.mine.views, some)),
    )
    return compare_match(smaller, _SETTINGS).verdict is Verdict.PASS


def _experts(values: RunValues, value: int, match: Match) -> Operation | None:
    """The experts of mine that made a value, if what they read agrees with golden.

    What they return may be what the layer around them returns, too.
    """
    if match.mine.tensor.role != "out" or _choice(match.golden.operation) is None:
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


def _other_choices(match: Match, experts: Operation) -> list[_Choice]:
    """Rows whose highest scores are not those that golden chose, all by scores that are near."""
    chosen = _choice(match.golden.operation)
    if chosen is None:
        return []
    try:
        ids, scores = chosen.nd(), _scores(experts, chosen)
        if scores is None:
            return []
        rows = [_picked(side.views) for side in (match.golden, match.mine)]
        golden = ids if rows[0] is None else ids[list(rows[0])]
        mine = scores.nd() if rows[1] is None else scores.nd()[list(rows[1])]
    except (AitError, IndexError):
        return []
    if len(golden) != len(mine) or not len(mine) or int(golden.max()) >= mine.shape[1]:
        return []
    dtype = match.rounded_to or scores.dtype
    limits = max(tolerance_for(each, each).relative_euclidean for each in (dtype, scores.dtype))
    near = _near_choices(golden.astype(np.int64), mine.astype(np.float64), limits)
    return [each for each in near if not (each.is_tied and _agrees_in(match, (each.row,)))]


def _near_choices(golden: Array, scores: Array, limit: float) -> list[_Choice]:
    """Other choices; none where the scores of one of them are too far apart for rounding."""
    count = golden.shape[1]
    highest = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    size = float(np.sqrt(np.mean(np.square(scores))))
    found = []
    for row, (one, other) in enumerate(zip(golden.tolist(), highest.tolist(), strict=True)):
        only = sorted(set(one) - set(other)), sorted(set(other) - set(one))
        if not only[1]:
            found += _tied(row, set(one), scores[row])
            continue
        margin = float(scores[row, only[1]].max() - scores[row, only[0]].min())
        if margin > _ROUNDINGS * limit * size:
            return []
        found.append(_Choice(row, tuple(only[0]), tuple(only[1]), margin))
    return found


def _tied(row: int, chosen: set[int], scores: Array) -> list[_Choice]:
    """The other choice of a row where an expert that was left out has a chosen one's score."""
    lowest = min(scores[list(chosen)])
    equal = set(np.flatnonzero(scores == lowest).tolist())
    if equal <= chosen:
        return []
    one, other = sorted(equal & chosen), sorted(equal - chosen)
    return [_Choice(row, tuple(one), tuple(other), 0.0, is_tied=True)]


def _choice(operation: Operation) -> Tensor | None:
    """Which experts golden's operation is told to take: whole numbers ``[rows, chosen]``."""
    for tensor in operation.inputs:
        try:
            if not tensor.dtype.is_floating and len(tensor.shape) == 2 and tensor.has_data:
                return tensor
        except AitError:
            continue
    return None


def _scores(operation: Operation, chosen: Tensor) -> Tensor | None:
    """The narrowest table of numbers that mine's experts read: one for each expert."""
    found = [
        tensor
        for tensor in operation.inputs
        if tensor.dtype.is_floating and len(tensor.shape) == 2 and tensor.has_data
    ]
    best = min(found, key=lambda tensor: tensor.shape[1], default=None)
    return best if len(found) > 1 and best and best.shape[1] >= chosen.shape[1] else None


def _rows(match: Match, schedule: Schedule) -> list[int] | None:
    """The row of the pass that each row of what is compared is; None where that is not known."""
    source = match.mine
    try:
        shape = source.tensor.shape
        count = shape_after(shape, source.views)[0] if shape else 0
    except (AitError, ValueError, IndexError):
        return None
    picked = _picked(source.views)
    is_last = bool(shape) and shape[0] == len(schedule.newest) < schedule.count
    every = list(schedule.newest) if is_last else list(range(shape[0] if shape else 0))
    try:
        rows = every if picked is None else [every[row] for row in picked]
    except IndexError:
        return None
    return rows if len(rows) == count else None


def _picked(views: tuple[View, ...]) -> tuple[int, ...] | None:
    """The rows that views leave; None where they leave all."""
    found = [view.indices for view in views if isinstance(view, Rows) and view.axis == 0]
    return found[-1] if found else None
