"""What ``ait llm opcheck`` says about its result besides the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.reports.notes import LISTED, notes
from ait_llm.report.wording import counted, printable


def summary_lines(report: OpcheckReport, files: Sequence[Path]) -> list[str]:
    """What a terminal shows: the verdict, what failed, what is missing, the files."""
    counts = report.counts
    words = ", ".join(f"{counts[v]} {v.value}" for v in Verdict if counts[v])
    lines = [
        f"ait llm opcheck: {report.verdict.value}: {counted(report.operators, 'operator')}, "
        f"outputs: {words or 'none'} (standard {report.standard})"
    ]
    for verdict in (Verdict.FAIL, Verdict.ERROR, Verdict.SKIPPED):
        items = [item for item in report.items if item.verdict is verdict]
        lines += [
            printable(f"  {verdict.value:<7} {item.title}: {item.reason}")
            for item in items[:LISTED]
        ]
        if len(items) > LISTED:
            lines.append(f"  {verdict.value:<7} and {len(items) - LISTED} more, see the report")
    lines += [printable(f"  note    {note}") for note in notes(report)]
    lines += [printable(f"  missing {problem.text}") for problem in report.problems]
    if report.partial:
        lines.append("  interrupted before everything was checked")
    lines += [printable(f"  report  {path}") for path in files]
    return lines
