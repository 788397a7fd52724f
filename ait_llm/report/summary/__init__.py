"""What a command says to a build: one record, written as Markdown, annotations and SARIF."""

from ait_llm.report.summary.record import Finding, Level, SourceLine, Summary, finding_order
from ait_llm.report.summary.writing import (
    FORMATS,
    SUFFIXES,
    annotate,
    summary_files,
    wants_places,
    write_summaries,
)

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "Finding",
    "Level",
    "SourceLine",
    "Summary",
    "annotate",
    "finding_order",
    "summary_files",
    "wants_places",
    "write_summaries",
]
