"""Summaries by the names of their formats."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ait_llm.report.files import make_folder, replacing
from ait_llm.report.summary.github import annotation_lines, append_step_summary
from ait_llm.report.summary.markdown import markdown_lines
from ait_llm.report.summary.page import Table, summary_page
from ait_llm.report.summary.record import Summary
from ait_llm.report.summary.sarif import sarif

FORMATS = ("markdown", "github", "sarif", "html")
"""Of commands that have no other reports; a comparison has a page of its own."""
SUFFIXES: Mapping[str, str] = {"markdown": ".md", "sarif": ".sarif", "html": ".html"}
"""Of the formats that are files; ``github`` is said to the step that runs."""
BUILD_FORMATS = FORMATS[:3]
"""Those that a build reads."""


def wants_places(formats: Collection[str]) -> bool:
    """True if a format has use for lines of source, which take a second look at a dump."""
    return any(name in formats for name in FORMATS)


def summary_files(formats: Collection[str], folder: Path, stem: str) -> list[Path]:
    """``{stem}.md`` and ``{stem}.sarif``, as far as they were asked for."""
    return [folder / f"{stem}{SUFFIXES[name]}" for name in SUFFIXES if name in formats]


def write_summaries(summary: Summary, files: Sequence[Path], tables: Sequence[Table] = ()) -> None:
    """Write a summary into files, in the format that the ending of each says.

    Args:
        summary: what a command found.
        files: to write.
        tables: what else the page shows.

    Raises:
        UsageError: one cannot be written.
    """
    for path in files:
        make_folder(path.parent)
        with replacing(path) as file:
            if path.suffix == SUFFIXES["markdown"]:
                file.write("\n".join(markdown_lines(summary)) + "\n")
            elif path.suffix == SUFFIXES["html"]:
                file.write(summary_page(summary, tables))
            else:
                root = os.environ.get("GITHUB_WORKSPACE") or os.curdir
                json.dump(sarif(summary, root), file, indent=1)
                file.write("\n")


def annotate(
    summary: Summary, formats: Collection[str], environment: Mapping[str, str]
) -> list[str]:
    """What ``--format github`` prints; its summary is added to the page of the step.

    Raises:
        UsageError: the file of the page cannot be written.
    """
    if "github" not in formats:
        return []
    append_step_summary(summary, environment)
    return annotation_lines(summary, environment)
