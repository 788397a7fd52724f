"""Formats by name, and the names of their files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ait_llm.core import Registry
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.report.files import make_folder

Writer = Callable[[OpcheckReport, Path], None]
"""Writes a report to a path."""

writers: Registry[Writer] = Registry("report format")
SUFFIXES = {
    "csv": ".csv",
    "xlsx": ".xlsx",
    "json": ".json",
    "junit": ".junit.xml",
    "markdown": ".md",
    "html": ".html",
}
STAMP = "%Y%m%d_%H%M%S"


def free_stem(folder: Path) -> str:
    """``opcheck_result_{YYYYmmdd_HHMMSS}``, local time; the next second that is free."""
    now = time.time()
    while True:
        stem = f"opcheck_result_{time.strftime(STAMP, time.localtime(now))}"
        if not any(folder.glob(f"{stem}*")):
            return stem
        now += 1


def write_reports(
    report: OpcheckReport, formats: Iterable[str], folder: Path, stem: str
) -> list[Path]:
    """Write a report in each format.

    Raises:
        UnknownNameError: no such format; nothing has been written then.
        UsageError: a file cannot be written.
        MissingDependencyError: xlsx without openpyxl.
    """
    chosen = {name: writers.get(name) for name in formats}
    make_folder(folder)
    written = []
    for name, write in chosen.items():
        path = folder / f"{stem}{SUFFIXES[name]}"
        write(report, path)
        written.append(path)
    return written
