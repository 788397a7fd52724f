"""A summary in Markdown for the page of a build, and one as a page of its own."""

from __future__ import annotations

from pathlib import Path

from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.reports.notes import notes
from ait_llm.opcheck.reports.summary import opcheck_summary
from ait_llm.opcheck.reports.writing import writers
from ait_llm.report.summary import Table, write_summaries
from ait_llm.report.wording import shape_text


@writers.register("markdown")
def write_markdown(report: OpcheckReport, path: Path) -> None:
    """Write a summary for the page of a build: counts, failures, what was not checked."""
    write_summaries(opcheck_summary(report, report.exit_code(), ()), [path])


@writers.register("html")
def write_page(report: OpcheckReport, path: Path) -> None:
    """Write a page: counts, failures, what was not checked, and every output."""
    write_summaries(opcheck_summary(report, report.exit_code(), ()), [path], _tables(report))


def _tables(report: OpcheckReport) -> list[Table]:
    told = Table("To know", ("what",), [(note,) for note in notes(report)])
    outputs = Table(
        "All outputs",
        ("verdict", "operator", "output", "type", "shape", "token", "reason"),
        [
            (
                item.verdict.value,
                item.op,
                item.output,
                item.dtype,
                shape_text(item.shape),
                str(item.step),
                item.reason,
            )
            for item in report.items
        ],
    )
    return [told, outputs]
