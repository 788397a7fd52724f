"""Formats by name, and the names of their files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ait_llm.core import Registry
from ait_llm.core.comparison import Report
from ait_llm.report.files import make_folder

Writer = Callable[[Report, Path], Sequence[Path]]
"""Writes a report to a path and returns the files that came of it."""

writers: Registry[Writer] = Registry("report format")

STAMP_FORMAT = "%Y%m%d%H%M%S"  # local time, as the manual's report names have it
_SUFFIXES = {"junit": "junit.xml"}  # all others are named as their format


def report_path(folder: Path, stamp: str, format_name: str) -> Path:
    """``{folder}/ait_cmp_report_{stamp}.csv``."""
    suffix = _SUFFIXES.get(format_name, format_name)
    return folder / f"ait_cmp_report_{stamp}.{suffix}"


def free_stamp(folder: Path) -> str:
    """The time now, or the next second that no report in the folder has yet."""
    now = time.time()
    while True:
        stamp = time.strftime(STAMP_FORMAT, time.localtime(now))
        if not any(folder.glob(f"ait_cmp_report_{stamp}*")):
            return stamp
        now += 1


def write_reports(
    report: Report, formats: Iterable[str], folder: Path, stamp: str = ""
) -> list[Path]:
    """Write a report in each format.

    Args:
        report: what to write.
        formats: names in the registry.
        folder: created if needed, with mode 0750; files get 0640.
        stamp: time in the names; the next free one if empty.

    Returns:
        The files, in the order of the formats.

    Raises:
        UnknownNameError: no such format; nothing has been written then.
        UsageError: a file cannot be written.
        MissingDependencyError: a format needs a package that is not installed.
    """
    chosen = {name: writers.get(name) for name in formats}
    make_folder(folder)
    stamp = stamp or free_stamp(folder)
    written: list[Path] = []
    for name, write in chosen.items():
        written += write(report, report_path(folder, stamp, name))
    return written
