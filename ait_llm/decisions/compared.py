"""From two captures, and a way to run mine again, to what both thought of their tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ait_llm.decisions.choices import Choice, decisions_of
from ait_llm.decisions.result import Decision, TokensResult
from ait_llm.decisions.settings import other_settings
from ait_llm.decisions.why import MOST, Reasons
from ait_llm.transplanting.patched import PatchedProgram
from ait_llm.transplanting.search import OtherPassesError
from ait_llm.transplanting.two_runs import TwoRuns

_NO_LOGITS = (
    "the programs give no logits that both captured; capture the outermost module of both, or the "
    "module that computes logits"
)


def tokens_of(runs: TwoRuns, tell: Callable[[str], None] = lambda _text: None) -> TokensResult:
    """What golden and mine thought of each token, and why they chose differently.

    Args:
        runs: mine and golden. A program that keeps roundings runs again to tell which errors
            changed its choices; of others a choice is told to be within rounding where everything
            that was compared is.
        tell: is told before each run what it is.

    Raises:
        FormatError, UsageError: the captures cannot be compared.
        ProgramFailedError: mine ends otherwise when it runs again.
    """
    started = time.monotonic()
    before = runs.before()
    side = runs if isinstance(runs, PatchedProgram) else None
    nothing = TokensResult("undecided", _NO_LOGITS, None if side is None else side.folder)
    if isinstance(before, str):
        return replace(nothing, reason=before)
    if runs.answer is None or not runs.answer.is_logits:
        return nothing
    choices = list(decisions_of(runs.answer, runs.mine))
    if not choices:
        return nothing
    count = 0
    if side is not None:
        decisions, count = _explained(side, choices, tell)
    else:
        decisions = [_by_comparison(choice.decision, differs=runs.differs) for choice in choices]
    return replace(
        nothing,
        status="compared",
        reason="",
        decisions=tuple(decisions),
        settings=tuple(other_settings(runs.golden, runs.mine)),
        runs=count,
        seconds=time.monotonic() - started,
        notes=tuple(runs.notes),
    )


def _explained(
    side: PatchedProgram, choices: list[Choice], tell: Callable[[str], None]
) -> tuple[list[Decision], int]:
    """The decisions; those that differ, else the one that drifts most, with what each error did."""
    flips = [each for each in choices if each.decision.flips]
    if not flips and not side.differs:
        return [each.decision for each in choices], 0
    first = _first_of_each_request(flips) or [max(choices, key=lambda each: each.decision.kl)]
    reasons = Reasons(side, tell)
    try:
        explained = dict(zip(map(id, first), reasons.parts(first), strict=True))
        causes = dict(zip(map(id, flips), reasons.causes(flips), strict=True))
    except OtherPassesError as error:
        explained, causes = {}, dict.fromkeys(map(id, flips), ("undecided", str(error)))
    found = []
    for each in choices:
        decision = explained.get(id(each), each.decision)
        if each.decision.flips:
            cause, reason = causes[id(each)]
            decision = replace(decision, cause=cause, reason=reason)
        found.append(decision)
    return found, reasons.runs


def _first_of_each_request(flips: list[Choice]) -> list[Choice]:
    """The first other choice of each request, of a few requests."""
    first: dict[int, Choice] = {}
    for each in sorted(flips, key=lambda each: (each.decision.step, each.decision.place)):
        first.setdefault(each.decision.place[0] if each.decision.place else 0, each)
    return list(first.values())[:MOST]


def _by_comparison(decision: Decision, *, differs: bool) -> Decision:
    """The cause as far as a comparison tells it."""
    if not decision.flips:
        return decision
    if not differs:
        return replace(decision, cause="rounding", reason="nothing differs by more than rounding")
    reason = (
        "some values differ by more than rounding; programs that can run tell whether it is that"
    )
    return replace(decision, cause="undecided", reason=reason)
