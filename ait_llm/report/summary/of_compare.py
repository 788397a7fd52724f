"""The summary of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ait_llm.core.comparison import Comparison, Origin, Report, Verdict
from ait_llm.report.operations import called_operations, not_compared
from ait_llm.report.stable_names import process_names
from ait_llm.report.summary.record import Finding, SourceLine, Summary, finding_order
from ait_llm.report.wording import counted, kind_text, why_not

WORDS = {0: "PASS", 1: "FAIL"}
"""What exit codes mean in a summary; all others are INCOMPLETE."""


def compare_summary(
    report: Report,
    code: int,
    files: Sequence[Path],
    next_command: str,
    *,
    lines: Mapping[str, SourceLine] | None = None,
    command: str = "compare",
) -> Summary:
    """What a comparison says to a build.

    Args:
        report: what was found.
        code: what the command ends with.
        files: reports that were written.
        next_command: what to run now, empty if nothing.
        lines: lines of source by the names of my operations.
        command: that ran.
    """
    counts = {v.value: count for v, count in report.counts.items()}
    lacking = [f"{each.side}: {each.text}" for each in report.problems if each.decides]
    if report.partial:
        lacking.append("interrupted before everything was compared")
    return Summary(
        command,
        WORDS.get(code, "INCOMPLETE"),
        code,
        f"{report.mine.path} ({report.mine.kind}) compared with {report.golden.path} "
        f"({report.golden.kind}): {counted(len(report.comparisons), 'tensor')}",
        counts,
        "tensors",
        finding_order(_findings(report, lines or {})),
        tuple(lacking),
        tuple(map(str, files)),
        next_command,
    )


def named_operations(report: Report) -> list[str]:
    """Names of my operations that a summary is going to mention."""
    if report.origins:
        return [origin.op for origin in report.origins]
    return [item.record.op for item in report.with_verdict(Verdict.FAIL) if item.mine is not None]


def _findings(report: Report, lines: Mapping[str, SourceLine]) -> Iterator[Finding]:
    mine = [item.mine for item in report.comparisons if item.mine is not None]
    processes = process_names((one.rank, one.device, one.pid) for one in mine)
    for origin in report.origins:
        process = processes.get((origin.device, origin.pid), "")
        part = f"step {origin.step} {process}".strip()
        rule = "origin" if origin.certain else "suspect"
        yield Finding(rule, "error", origin.op, _why(report, origin), part, lines.get(origin.op))
    if not report.origins:
        yield from _failed(report, processes, lines)
    for reason, count, example in not_compared(report):
        error = example.verdict is Verdict.ERROR
        more = f" and {count - 1:,} more" if count > 1 else ""
        rule = "not-computed" if error else "not-checked"
        yield Finding(rule, "warning", f"{example.record.title}{more}", reason)


def _why(report: Report, origin: Origin) -> str:
    parts = [origin.evidence]
    if origin.kind:
        parts.append(f"kind of bug: {kind_text(origin)}")
    if not origin.certain and origin.candidates:
        parts.append(f"or at {', '.join(origin.candidates[:5])}")
    if not any(parts) and origin.index is not None and origin.index < len(report.comparisons):
        parts.append(why_not(report.comparisons[origin.index]))
    return "; ".join(filter(None, parts)) or "its outputs fail"


def _failed(
    report: Report, processes: Mapping[tuple[int, int], str], lines: Mapping[str, SourceLine]
) -> Iterator[Finding]:
    """Operations that fail, where nothing tells with which of them it started."""
    for each in called_operations(report):
        if each.verdict is not Verdict.FAIL:
            continue
        record = each.record
        failed = [report.comparisons[index] for index in each.indices]
        first = next(item for item in failed if item.verdict is Verdict.FAIL)
        process = processes.get((record.device, record.pid), "")
        part = f"{first.record.name} {_step(first, process)}".strip()
        yield Finding("failed", "error", record.op, why_not(first), part, lines.get(record.op))


def _step(item: Comparison, process: str) -> str:
    record = item.record
    if record.role not in ("in", "out"):
        return process
    call = f" call {record.call}" if record.call else ""
    return f"step {record.step}{call} {process}".strip()
