"""What tests ask of matches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.programs import match_programs
from ait_llm.match.views import apply
from ait_llm.program.one_pass import Pass

Found = list[Match | Unmatched]


def matched(golden: Pass, mine: Pass) -> Found:
    """Everything that the matcher says."""
    return list(match_programs(golden, mine, MatchOptions()))


def matches_of(found: Iterable[Match | Unmatched]) -> list[Match]:
    """The matches."""
    return [item for item in found if isinstance(item, Match)]


def unmatched_of(found: Iterable[Match | Unmatched]) -> list[Unmatched]:
    """The rest."""
    return [item for item in found if isinstance(item, Unmatched)]


def wrong_numbers(found: Iterable[Match | Unmatched], limit: float = 0.02) -> list[str]:
    """Matches of a correct pair of runs whose viewed values differ: each is a wrong match.

    The limit is relative to the largest value. Two layers of sixteen-bit arithmetic in different
    orders stay below it; other columns, rows or tensors never do.
    """
    wrong = []
    for match in matches_of(found):
        golden = apply(match.golden.tensor.nd(), match.golden.views).astype(np.float64)
        mine = apply(match.mine.tensor.nd(), match.mine.views).astype(np.float64)
        same_shape = golden.shape == mine.shape
        scale = max(float(np.abs(golden).max()), 1e-3)
        if not same_shape or float(np.abs(golden - mine).max()) > limit * scale:
            wrong.append(f"{match.golden.record.title} <-> {match.mine.record.title}")
    return wrong


def outputs(found: Iterable[Match | Unmatched]) -> set[tuple[str, str]]:
    """Golden and my operation of every match of two outputs."""
    return {
        (match.golden.record.op, match.mine.record.op)
        for match in matches_of(found)
        if match.golden.record.role == match.mine.record.role == "out"
    }


def find(found: Iterable[Match | Unmatched], golden: str, mine: str) -> Match:
    """The only match of two outputs by the names of their operations."""
    (match,) = (
        match
        for match in matches_of(found)
        if (match.golden.record.op, match.mine.record.op) == (golden, mine)
        and match.golden.record.role == match.mine.record.role == "out"
    )
    return match
