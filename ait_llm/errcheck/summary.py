"""The summary of a search for NaN, Inf and saturated values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ait_llm.errcheck.result import ErrcheckResult, Finding
from ait_llm.report import summary as build
from ait_llm.report.summary import SourceLine, Summary
from ait_llm.report.wording import counted

_BEGAN = {
    "born": "born here",
    "leak": "leaks from padding here",
    "own code": "born in the code of this module",
    "entered": "came in from outside here",
    "received": "received from a rank that was not captured",
}


def errcheck_summary(
    result: ErrcheckResult,
    code: int,
    files: Sequence[Path],
    next_command: str | None,
    *,
    lines: Mapping[str, SourceLine] | None = None,
) -> Summary:
    """What a search says to a build.

    Args:
        result: what was found.
        code: what the command ends with.
        files: that were written.
        next_command: what tells more.
        lines: lines of source by the names of operations.
    """
    checked = result.checked
    verdict = {0: "PASS", 1: "FAIL"}.get(code, "INCOMPLETE")
    if result.exit_code:
        verdict = f"the program failed with exit code {result.exit_code}"
    return Summary(
        "errcheck",
        verdict,
        code,
        f"{counted(checked.operations, 'operation')}, {counted(checked.tensors, 'tensor')} and "
        f"{counted(checked.elements, 'element')} were looked at for NaN, Inf and saturated values",
        {
            "where numbers go wrong": len(result.harmful),
            "of no harm": len(result.findings) - len(result.harmful),
            "reported by the library alone": len(result.unexplained),
        },
        "places",
        tuple(_findings(result, lines or {})),
        result.problems,
        tuple(map(str, files)),
        next_command or "",
    )


def _findings(result: ErrcheckResult, lines: Mapping[str, SourceLine]) -> Iterator[build.Finding]:
    for each in result.harmful:
        place = each.place
        part = f"step {place.step} rank {place.rank}"
        yield build.Finding(
            "overflow", "error", place.name, _text(each), part, lines.get(place.name)
        )
    for name in result.unexplained:
        text = "overflowed, says the library, and no tensor shows it"
        yield build.Finding("overflow", "error", name, text)


def _text(finding: Finding) -> str:
    odd = "; ".join(f"{tensor.title}: {tensor.kinds}" for tensor in finding.tensors)
    return f"{_BEGAN[finding.origin]}: {odd}; {finding.reason}"
