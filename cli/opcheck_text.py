"""What ``ait llm opcheck`` says about its result besides the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.rerun import NO_RERUN, NoBackend
from ait_llm.report.wording import counted, printable

_LISTED = 10  # of each verdict
ON_HOSTATB = (
    "the dump is of hostatb, whose kernels are the golden operators: what passes shows that "
    "capture and check fit together, not that a kernel is right"
)
_NO_OTHER = (
    "there is no NPU here; --rerun-with MODULE:FUNCTION runs operators with another implementation"
)


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
            for item in items[:_LISTED]
        ]
        if len(items) > _LISTED:
            lines.append(f"  {verdict.value:<7} and {len(items) - _LISTED} more, see the report")
    if report.on_hostatb:
        lines.append(f"  note    {ON_HOSTATB}")
    if report.rerun == NoBackend.name:
        lines.append(f"  note    {NO_RERUN}: {_NO_OTHER}")
    noted = Counter(i.note for i in report.items if i.note and i.verdict is Verdict.PASS)
    for note, count in noted.most_common(_LISTED):
        lines.append(printable(f"  note    {counted(count, 'output')} passed: {note}"))
    for reason, count in sorted(report.unchecked.items()):
        what = f"nothing to check in {counted(count, 'operator')}"
        lines.append(f"  note    {what}: such operators {reason}")
    lines += [printable(f"  missing {problem.text}") for problem in report.problems]
    if report.partial:
        lines.append("  interrupted before everything was checked")
    lines += [printable(f"  report  {path}") for path in files]
    return lines
