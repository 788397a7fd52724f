"""The summary of a bisection."""

from __future__ import annotations

from ait_llm.bisect.result import BisectResult
from ait_llm.report.summary import Finding, Summary
from ait_llm.report.wording import counted

_VERDICTS = {
    "equal": "PASS",
    "found": "FAIL",
    "undecided": "INCOMPLETE",
    "unrepeatable": "does not repeat itself",
    "failed": "a program failed",
    "interrupted": "interrupted",
}


def bisect_summary(result: BisectResult, code: int, next_command: str = "") -> Summary:
    """What a bisection says to a build.

    Args:
        result: how it ended.
        code: what the command ends with.
        next_command: what looks closer.
    """
    runs = counted(len(result.runs), "run")
    return Summary(
        "bisect",
        _VERDICTS[result.status],
        code,
        f"{runs} of two programs, {result.written:,} bytes written, "
        f"{counted(result.compared, 'pair')} of tensors compared in the last comparison",
        findings=tuple(filter(None, (_finding(result),))),
        lacking=tuple(result.notes),
        reports=(str(result.folder),),
        next=next_command,
    )


def _finding(result: BisectResult) -> Finding | None:
    side = "golden" if result.side == "golden" else "suspicious"
    if result.status == "failed":
        text = f"the {side} program ended with exit code {result.program_code}"
        return Finding("program", "error", f"{side} program", text)
    if result.unrepeated is not None:
        return Finding("unrepeatable", "warning", f"{side} program", result.unrepeated.sentence())
    if result.origin is None:
        return None
    found = result.status == "found"
    text = result.origin.evidence or "the programs part here"
    within = f"in {result.module}: " if result.module and result.module != result.origin.op else ""
    rule = "origin" if found else "suspect"
    part = f"step {result.origin.step}"
    return Finding(rule, "error" if found else "warning", result.origin.op, within + text, part)
