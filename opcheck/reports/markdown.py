"""A summary in Markdown, for the page of a build."""

from __future__ import annotations

from pathlib import Path

from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.reports.summary import opcheck_summary
from ait_llm.opcheck.reports.writing import writers
from ait_llm.report.summary import write_summaries


@writers.register("markdown")
def write_markdown(report: OpcheckReport, path: Path) -> None:
    """Write a summary for the page of a build: counts, failures, what was not checked."""
    write_summaries(opcheck_summary(report, report.exit_code(), ()), [path])
