"""What a command says to a build: one record, written as Markdown, annotations and SARIF."""

from ait_llm.report.summary.curves import Curve
from ait_llm.report.summary.page import Table
from ait_llm.report.summary.record import Finding, Level, SourceLine, Summary, finding_order
from ait_llm.report.summary.writing import (
    BUILD_FORMATS,
    FORMATS,
    SUFFIXES,
    annotate,
    summary_files,
    wants_places,
    write_summaries,
)

__all__ = [
    "BUILD_FORMATS",
    "FORMATS",
    "SUFFIXES",
    "Curve",
    "Finding",
    "Level",
    "SourceLine",
    "Summary",
    "Table",
    "annotate",
    "finding_order",
    "summary_files",
    "wants_places",
    "write_summaries",
]
