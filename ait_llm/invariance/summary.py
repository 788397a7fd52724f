"""The summary of runs under changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.invariance.result import InvariantResult, Outcome
from ait_llm.report.summary import Finding, Summary, Table, finding_order
from ait_llm.report.wording import counted

WORDS = {
    "held": "held",
    "broken": "broken",
    "undecided": "undecided",
    "not made": "not made",
    "failed": "the program failed",
}
"""What becomes of a change, as reports call it."""


def invariant_summary(
    result: InvariantResult, code: int, files: Sequence[Path], next_command: str
) -> Summary:
    """What the runs say to a build.

    Args:
        result: of the runs.
        code: what the command ends with.
        files: that were written.
        next_command: what tells more; empty if nothing does.
    """
    verdict = {0: "PASS", 1: "FAIL"}.get(code, "INCOMPLETE")
    if result.exit_code:
        verdict = f"the program failed with exit code {result.exit_code}"
    counts = {WORDS[state]: len(result.in_state(state)) for state in WORDS}  # type: ignore[arg-type]
    lacking = [*result.problems, *(f"{each.name}: {each.reason}" for each in _open(result))]
    if result.interrupted:
        lacking.append("interrupted before every change was made")
    return Summary(
        "invariant",
        verdict,
        code,
        f"{counted(result.runs, 'run')} of it, with changes that must not change its answer",
        counts,
        "changes",
        finding_order(_findings(result)),
        tuple(lacking),
        tuple(map(str, files)),
        next_command,
    )


def invariant_tables(result: InvariantResult) -> list[Table]:
    """What became of each change, for the page."""
    rows = [
        (
            each.name,
            WORDS[each.state],
            exactness(each),
            "" if each.origin is None else each.origin.op,
            "" if each.flip is None else f"{each.flip.before} -> {each.flip.after}",
            each.reason,
        )
        for each in result.outcomes
    ]
    head = ("change", "state", "numbers", "operator", "token", "reason")
    return [Table("Changes", head, rows)]


def exactness(outcome: Outcome) -> str:
    """How near the numbers are, in a word or two."""
    if outcome.state == "held":
        return "equal" if outcome.equal else "equal within rounding"
    return f"{outcome.failed:,} of {outcome.compared:,} differ" if outcome.failed else ""


def _open(result: InvariantResult) -> list[Outcome]:
    return result.in_state("undecided", "failed")


def _findings(result: InvariantResult) -> Iterator[Finding]:
    for each in result.outcomes:
        if each.state == "broken":
            origin = each.origin
            rule = "origin" if origin is not None and origin.certain else "suspect"
            where = "the answer" if origin is None else origin.op
            part = each.name if origin is None else f"{each.name} step {origin.step}"
            yield Finding(rule, "error", where, f"{each.change.breaks}: {each.reason}", part)
        elif each.state == "failed":
            yield Finding("program", "warning", each.name, each.reason)
        elif each.state == "undecided":
            yield Finding("not-checked", "warning", each.name, each.reason)
        elif each.flip is not None:
            yield Finding(
                "doubtful", "notice", each.name, f"a token changes within rounding: {each.reason}"
            )
