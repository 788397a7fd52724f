"""Annotations and the summary of a step, as GitHub Actions takes them.

Source: "Workflow commands for GitHub Actions" of GitHub's documentation: the messages ``error``,
``warning`` and ``notice`` with ``title``, ``file`` and ``line``; ``%``, line breaks, and in
properties ``:`` and ``,`` are percent-encoded; a step shows ten of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ait_llm.errors import UsageError
from ait_llm.report.summary.markdown import markdown_lines
from ait_llm.report.summary.record import Level, SourceLine, Summary
from ait_llm.report.wording import printable

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_SHOWN = 10  # of each level in a step; GitHub leaves out the others without a word
_LEVELS: tuple[Level, ...] = ("error", "warning", "notice")


def annotation(level: Level, title: str, text: str, source: SourceLine | None = None) -> str:
    """One workflow command, a line."""
    place = ""
    if source is not None:
        place = f"file={_property(source.file)},line={source.line},"
    return f"::{level} {place}title={_property(title)}::{_data(text)}"


def annotation_lines(summary: Summary, environment: Mapping[str, str]) -> list[str]:
    """A workflow command for each finding and for what is missing, at most ten of a level.

    What decides nothing gets none. Files below the workspace are named from there, as GitHub names
    them.
    """
    root = environment.get("GITHUB_WORKSPACE") or os.curdir
    name = f"ait llm {summary.command}"
    found: dict[Level, list[str]] = {level: [] for level in _LEVELS}
    for each in summary.findings:
        if each.level == "notice":
            continue
        source = each.source and below(each.source, root)
        line = annotation(each.level, f"{name}: {each.place}", printable(each.text), source)
        found[each.level].append(line)
    found["warning"] += [annotation("warning", name, printable(text)) for text in summary.lacking]
    lines = []
    for level in _LEVELS:
        kept = found[level]
        if len(kept) > _SHOWN:
            more = f"and {len(kept) - _SHOWN + 1} more, see the summary and the reports"
            kept = [*kept[: _SHOWN - 1], annotation(level, name, more)]
        lines += kept
    return lines


def append_step_summary(summary: Summary, environment: Mapping[str, str]) -> None:
    """Add a summary to the page of the step; nothing where no step is running.

    Raises:
        UsageError: the file that the step names cannot be written.
    """
    name = environment.get(STEP_SUMMARY)
    if not name:
        return
    text = "\n".join(markdown_lines(summary))
    try:
        with Path(name).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{text}\n\n")
    except OSError as error:
        raise UsageError(
            f"{name}, the file of {STEP_SUMMARY}, cannot be written ({error.strerror or error})"
        ) from error


def below(source: SourceLine, root: str) -> SourceLine:
    """The same line with a path from a folder, where the file lies in it."""
    path = os.path.abspath(source.file)  # noqa: PTH100  # a path of text, also of another machine
    start = os.path.abspath(root) + os.sep  # noqa: PTH100
    if not path.startswith(start):
        return source
    return SourceLine(path[len(start) :], source.line, source.function)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
