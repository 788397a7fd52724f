"""The summary of a check of operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.report.stable_names import process_names
from ait_llm.report.summary import Finding, Level, SourceLine, Summary, finding_order
from ait_llm.report.wording import counted

_RULES: Mapping[Verdict, tuple[str, Level]] = {
    Verdict.FAIL: ("failed", "error"),
    Verdict.ERROR: ("not-computed", "warning"),
    Verdict.SKIPPED: ("not-checked", "warning"),
}


def opcheck_summary(
    report: OpcheckReport,
    code: int,
    files: Sequence[Path],
    next_command: str = "",
    *,
    lines: Mapping[str, SourceLine] | None = None,
    kernel: SourceLine | None = None,
) -> Summary:
    """What a check says to a build.

    Args:
        report: what was found.
        code: what the command ends with.
        files: reports that were written.
        next_command: what to run now, empty if nothing.
        lines: lines of source by the names of operators of torch.
        kernel: where another implementation is written, which ran the operators again.
    """
    lacking = [problem.text for problem in report.problems if problem.decides]
    if report.partial:
        lacking.append("interrupted before everything was checked")
    again = f", run again with {report.rerun}" if report.rerun else ""
    return Summary(
        "opcheck",
        {0: "PASS", 1: "FAIL"}.get(code, "INCOMPLETE"),
        code,
        f"{counted(report.operators, 'operator')} of {report.path}, standard "
        f"{report.standard}{again}",
        {verdict.value: count for verdict, count in report.counts.items()},
        "outputs",
        finding_order(_findings(report, lines or {}, kernel)),
        tuple(lacking),
        tuple(map(str, files)),
        next_command,
    )


def _findings(
    report: OpcheckReport, lines: Mapping[str, SourceLine], kernel: SourceLine | None
) -> Iterator[Finding]:
    processes = process_names((-1, item.device, item.pid) for item in report.items)
    for item in report.items:
        if item.verdict is Verdict.PASS:
            continue
        rule, level = _RULES[item.verdict]
        part = f"{item.output} step {item.step} {processes[item.device, item.pid]}".strip()
        by_kernel = item.rerun is not None and item.rerun.verdict is Verdict.FAIL
        source = kernel if by_kernel and kernel else lines.get(item.op_id.partition("@")[0])
        yield Finding(rule, level, item.op, item.reason, part, source)
