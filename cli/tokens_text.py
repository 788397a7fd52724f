"""What ``ait llm tokens`` says, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.cli.dump_text import table
from ait_llm.cli.numbers import counted
from ait_llm.decisions.result import Decision, TokensResult

_FLIPS = 8
_PARTS = 3  # contributions of one choice
_REST = 0.5  # share of a change that no error explains, from which on that is said
_SECONDS = 90  # above, times are told in minutes
_CAUSES = {
    "rounding": "within rounding",
    "difference": "by a difference of the programs",
    "undecided": "cause unknown",
    "": "cause unknown",
}


def describe_result(result: TokensResult, files: Sequence[Path]) -> str:
    """The choices that differ and why, and how far the others drifted."""
    lines: list[tuple[str, str]] = []
    if result.reason:
        lines.append(("reason", result.reason))
    for setting in result.settings:
        values = [value or "not set" for value in (setting.mine, setting.golden)]
        lines.append(("setting", f"{setting.name} is {values[0]} instead of {values[1]}"))
    flips = result.flips
    for each in flips[:_FLIPS]:
        lines += _flip(each)
    if len(flips) > _FLIPS:
        lines.append(("", f"… and {len(flips) - _FLIPS} more"))
    if not flips:
        lines += [line for each in result.decisions for line in _parts(each, "drifts")]
    lines += _drift(result)
    lines += [("note", text) for text in result.notes]
    if result.runs:
        lines.append(("cost", f"{counted(result.runs, 'run')}, {_time(result.seconds)}"))
    if files:
        lines.append(("files", ", ".join(map(str, files))))
    return table(f"ait llm tokens: {_verdict(result)}", lines)


def _verdict(result: TokensResult) -> str:
    if result.status != "compared":
        return "the program failed" if result.status == "failed" else "INCOMPLETE"
    flips, count = result.flips, len(result.decisions)
    if result.settings:
        return "FAIL: tokens are chosen by other settings"
    if not flips:
        return f"PASS: all {counted(count, 'token')} are golden's"
    if result.code == 0:
        return f"PASS: {len(flips)} of {counted(count, 'token')} differ, all within rounding"
    if result.code == 1:
        wrong = sum(each.cause == "difference" for each in flips)
        return f"FAIL: {wrong} of {counted(count, 'token')} differ by more than rounding"
    return f"INCOMPLETE: {len(flips)} of {counted(count, 'token')} differ, and why is not known"


def _flip(decision: Decision) -> Iterator[tuple[str, str]]:
    place = ", ".join(map(str, decision.place))
    yield (
        "token",
        f"step {decision.step}, place {place}: {decision.mine} instead of {decision.golden}, "
        f"{_CAUSES[decision.cause]}",
    )
    own, other = decision.golden_probability, decision.other_probabilities[0]
    mine, mines = decision.mine_probability, decision.other_probabilities[1]
    yield (
        "",
        f"margin {decision.golden_margin:.3g} in golden, {decision.mine_margin:.3g} in mine; "
        f"probabilities {own:.3g} against {other:.3g}, and {mine:.3g} against {mines:.3g}",
    )
    if decision.reason:
        yield "", decision.reason
    yield from _parts(decision, "")


def _parts(decision: Decision, label: str) -> Iterator[tuple[str, str]]:
    if decision.explained is None:
        return
    if label:
        yield label, f"most at step {decision.step}, token {decision.golden}"
    for each in decision.contributions[:_PARTS]:
        within = ", no more than rounding" if each.within_rounding else ""
        measured = ", measured" if each.measured else ""
        through = f" to {each.through}" if each.through else f" {each.name}"
        yield "", f"{each.change:+.3g} by {each.op}{through}{within}{measured}"
    told = f"{decision.explained:+.3g} by all, and {decision.change:+.3g} was measured"
    if abs(decision.explained - decision.change) > _REST * abs(decision.change):
        told += "; roundings behind these errors made the rest"
    yield "", told


def _drift(result: TokensResult) -> Iterator[tuple[str, str]]:
    worst = result.worst
    if worst is None:
        return
    yield (
        "drift",
        f"{result.mean_drift:.2e} of a log-probability in the mean, {abs(worst.drift):.2e} at "
        f"step {worst.step}",
    )


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _SECONDS else f"{seconds / 60:.1f} min"
