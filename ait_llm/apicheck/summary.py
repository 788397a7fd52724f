"""The summary of a check of recorded calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ait_llm.apicheck.outcome import ERROR, WARNING, ApiResult, Checked, Outcome
from ait_llm.dumps.api_order import read_stacks
from ait_llm.dumps.source_lines import line_of_stack
from ait_llm.errors import AitError
from ait_llm.report.summary import Finding, Level, SourceLine, Summary, finding_order
from ait_llm.report.wording import counted


def api_check_summary(outcome: Outcome, code: int, *, places: bool) -> Summary:
    """What a check says to a build.

    Args:
        outcome: what came of it.
        code: what the command ends with.
        places: look for the lines that made the calls, in the stacks of the capture.
    """
    lacking = [problem for each in outcome.checked for problem in each.problems]
    if outcome.stopped:
        lacking.append("interrupted before everything was checked")
    files = tuple(str(path) for each in outcome.checked for path in each.files)
    return Summary(
        "api-check",
        {0: "PASS", 1: "FAIL"}.get(code, "INCOMPLETE"),
        code,
        f"{counted(outcome.counts.total(), 'call')} on {outcome.device}, standard "
        f"{outcome.standard}",
        {status.strip() or "nothing to do": count for status, count in outcome.counts.items()},
        "calls",
        finding_order(_findings(outcome, places)),
        tuple(lacking),
        files,
    )


def _findings(outcome: Outcome, places: bool) -> Iterator[Finding]:
    several = len(outcome.checked) > 1
    for checked in outcome.checked:
        stacks = _Stacks(checked) if places else None
        part = _part(checked.path) if several else ""
        for each in checked.results:
            found = _kind(each)
            if found is not None:
                source = None if stacks is None else stacks.line(each.name)
                yield Finding(*found, each.name, each.message, part, source)


def _kind(result: ApiResult) -> tuple[str, Level] | None:
    if result.worst == ERROR:
        return "failed", "error"
    if result.is_missing:
        return "not-checked", "warning"
    return ("doubtful", "notice") if result.worst == WARNING else None


def _part(path: Path) -> str:
    """``step0 rank0``: the folders of a capture."""
    return " ".join(path.parts[-3:-1])


class _Stacks:
    """Lines by the names of the calls of one file; none where the capture took no stacks."""

    def __init__(self, checked: Checked) -> None:
        try:
            self._stacks = read_stacks(checked.path.parent / "stack.json")
        except AitError:
            self._stacks = {}

    def line(self, name: str) -> SourceLine | None:
        stack = self._stacks.get(f"{name}.forward") or self._stacks.get(name)
        return line_of_stack(stack) if stack else None
