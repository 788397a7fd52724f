"""docs/plan.md is true: its commands print what it shows, but for times and free space."""

from __future__ import annotations

import re

import pytest
from doc_pages import DOCS, Shell, first_difference, run_page

PAGE = (DOCS / "plan.md").read_text("utf-8")


def steady(text: str) -> str:
    """The text without times, and without what the length of a path or a process id changes."""
    text = re.sub(
        r"(?: \\)?\n {11,}", " ", text
    )  # lines are wrapped where times have other lengths
    text = re.sub(r"-o\s+\S+/out\b", "-o /home/me/out", text)
    text = re.sub(r"\b[\d.]+ (s|min)\b", "TIME", text)
    text = re.sub(r"bytes    [\d,]+", "bytes    SIZE", text)
    text = re.sub(r"disk in blocks of [\d.]+ KiB, [\d.]+ \w+ are", "disk in blocks", text)
    return re.sub(r"\d+,\d{3} files", "FILES", text)


@pytest.mark.native
def test_the_page_prints_what_it_shows(shell: Shell) -> None:
    for step, ran in run_page(PAGE, shell):
        assert ran.exit_code == step.exit_code, f"{step.command}\n{ran.output}"
        shown = steady("\n".join(step.shown)).splitlines()
        difference = first_difference(shown, steady(ran.output), shell.folder)
        assert difference is None, f"{step.command}\n{difference}\nIt printed:\n{ran.output}"
