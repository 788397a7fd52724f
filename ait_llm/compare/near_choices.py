"""Rows of an engine's experts whose scores lie so close that another choice is as right."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.compare.pair import Settings, compare_match
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.tolerance import tolerance_for
from ait_llm.match.model import Match
from ait_llm.match.views import Rows, View

_SETTINGS = Settings(metrics=())
_ROUNDINGS = 2
"""Both sides' scores may be off, each by what its type permits."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Another choice in a row of what is compared, and how far the scores are apart."""

    row: int
    golden: tuple[int, ...]
    mine: tuple[int, ...]
    margin: float
    is_tied: bool = False
    """Scores are the same number: which was chosen cannot be read off them."""


def other_choices(match: Match, experts: Operation, left_out: Collection[int]) -> list[Choice]:
    """Rows whose highest scores are not those that golden chose, all by scores that are near.

    Args:
        match: of what the experts return.
        experts: the operation of mine, which reads the scores.
        left_out: rows of the pair that are not looked at.
    """
    chosen = choice_of(match.golden.operation)
    if chosen is None:
        return []
    try:
        ids, scores = chosen.nd(), _scores(experts, chosen)
        if scores is None:
            return []
        taken = [picked(side.views) for side in (match.golden, match.mine)]
        golden = ids if taken[0] is None else ids[list(taken[0])]
        mine = scores.nd() if taken[1] is None else scores.nd()[list(taken[1])]
    except (AitError, IndexError):
        return []
    if len(golden) != len(mine) or not len(mine) or int(golden.max()) >= mine.shape[1]:
        return []
    dtype = match.rounded_to or scores.dtype
    limits = max(tolerance_for(each, each).relative_euclidean for each in (dtype, scores.dtype))
    near = near_choices(golden.astype(np.int64), mine.astype(np.float64), limits, left_out)
    return [each for each in near if not (each.is_tied and _agrees_in(match, (each.row,)))]


def near_choices(
    golden: Array, scores: Array, limit: float, left_out: Collection[int] = ()
) -> list[Choice]:
    """Other choices; none where the scores of one of them are too far apart for rounding.

    Args:
        golden: experts that golden chose, ``[rows, chosen]``.
        scores: of mine, ``[rows, experts]``.
        limit: what their type permits, relative to their size.
        left_out: rows that are not looked at.
    """
    count = golden.shape[1]
    highest = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    size = float(np.sqrt(np.mean(np.square(scores))))
    found = []
    for row, (one, other) in enumerate(zip(golden.tolist(), highest.tolist(), strict=True)):
        if row in left_out:
            continue
        only = sorted(set(one) - set(other)), sorted(set(other) - set(one))
        if not only[1]:
            found += _tied(row, set(one), scores[row])
            continue
        margin = float(scores[row, only[1]].max() - scores[row, only[0]].min())
        if margin > _ROUNDINGS * limit * size:
            return []
        found.append(Choice(row, tuple(only[0]), tuple(only[1]), margin))
    return found


def _tied(row: int, chosen: set[int], scores: Array) -> list[Choice]:
    """The other choice of a row where an expert that was left out has a chosen one's score."""
    lowest = min(scores[list(chosen)])
    equal = set(np.flatnonzero(scores == lowest).tolist())
    if equal <= chosen:
        return []
    one, other = sorted(equal & chosen), sorted(equal - chosen)
    return [Choice(row, tuple(one), tuple(other), 0.0, is_tied=True)]


def choice_of(operation: Operation) -> Tensor | None:
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


def _agrees_in(match: Match, rows: tuple[int, ...]) -> bool:
    """True if a pair agrees in these of its rows."""
    return compare_match(in_rows(match, rows), _SETTINGS).verdict is Verdict.PASS


def in_rows(match: Match, rows: tuple[int, ...]) -> Match:
    """A pair in these of its rows."""
    some = Rows(0, rows)
    return replace(
        match,
        golden=replace(match.golden, views=(*match.golden.views, some)),
        mine=replace(match.mine, views=(*match.mine.views, some)),
    )


def picked(views: tuple[View, ...]) -> tuple[int, ...] | None:
    """The rows that views leave; None where they leave all."""
    found = [view.indices for view in views if isinstance(view, Rows) and view.axis == 0]
    return found[-1] if found else None
