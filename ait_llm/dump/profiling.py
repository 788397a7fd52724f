"""Turns the statistics that the probe appended during a run into tables.

The probe writes one line per report, ``[DecoderLayer_0]:totalTime:188, runnerSetupTime:115, ...``.
After the run each file is rewritten in the manual's form, one block per operation::

    DecoderLayer_0:
    [execute] totalTime:535801, kernelExecuteTime:416
    [setup] totalTime:188, runnerSetupTime:115

and a csv of the same name is put beside it. Doing so twice changes nothing.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.errors import IncompleteError

_FILE_NAME = re.compile(r"operation_statistic_\d+\.txt")
_REPORT = re.compile(r"\[([^\]]*)\]:(.*)")
_BLOCK_NAME = re.compile(r"([^\[\]\s].*):")
_BLOCK_LINE = re.compile(r"\[(execute|setup)\] (.*)")
# ATB prints the same times in both kinds of report; these two are what tells them apart.
_IS_EXECUTE = re.compile(r"kernelExecuteTime:\d+")
_IS_SETUP = re.compile(r"runnerSetupTime:\d+")
_KINDS = ("execute", "setup")


@dataclass(slots=True)
class OperationTimes:
    """The last report of each kind for one operation, as ATB wrote it. Times are microseconds."""

    reports: dict[str, str] = field(default_factory=dict)

    def cells(self) -> dict[str, str]:
        """Column name (``setup_totalTime``) to value."""
        return {
            f"{kind}_{key.strip()}": value.strip()
            for kind, text in self.reports.items()
            for key, _, value in (item.partition(":") for item in text.split(","))
            if key.strip()
        }


@dataclass(frozen=True, slots=True)
class MergedProfile:
    """Result for one file: the csv that was written and how many lines were not understood."""

    table: Path
    operations: int
    unread_lines: int


def merge_profiling(directory: Path, *, rewrite_text: bool = True) -> list[MergedProfile]:
    """Merge every statistics file of one process.

    Args:
        directory: ``cpu_profiling/{start time}`` of one process; others are not looked at.
        rewrite_text: replace the raw text by the manual's form too. False while a process of
            the run may still append to it.

    Raises:
        IncompleteError: a file cannot be read or written.
    """
    merged = []
    for path in sorted(directory.glob("*.txt")):
        if not _FILE_NAME.fullmatch(path.name):
            continue
        try:
            operations, unread = parse_statistics(path.read_text("utf-8", "replace").splitlines())
            table = path.with_suffix(".csv")
            _replace(table, _as_csv(operations))
            if rewrite_text:
                _replace(path, _as_text(operations))
        except OSError as error:
            raise IncompleteError(
                f"{path}: cpu_profiling could not be merged ({error.strerror}); the raw file is "
                "kept"
            ) from error
        merged.append(MergedProfile(table, len(operations), unread))
    return merged


def parse_statistics(lines: Iterable[str]) -> tuple[dict[str, OperationTimes], int]:
    """Read raw lines, merged blocks, or a mix of both.

    Returns:
        Operation name to its times, in order of first appearance; and the number of lines that
        are neither.
    """
    operations: dict[str, OperationTimes] = {}
    current: OperationTimes | None = None
    unread = 0
    for line in lines:
        if not line.strip():
            continue
        if match := _REPORT.fullmatch(line):
            name, text = match.groups()
            if (kind := _kind_of(text)) is None:
                unread += 1
            else:
                operations.setdefault(name, OperationTimes()).reports[kind] = text.strip()
        elif current is not None and (match := _BLOCK_LINE.fullmatch(line)):
            current.reports[match.group(1)] = match.group(2)
        elif match := _BLOCK_NAME.fullmatch(line):
            current = operations.setdefault(match.group(1), OperationTimes())
        else:
            unread += 1
    return operations, unread


def _kind_of(text: str) -> str | None:
    if _IS_EXECUTE.search(text):
        return "execute"
    return "setup" if _IS_SETUP.search(text) else None


def _as_text(operations: dict[str, OperationTimes]) -> str:
    blocks = []
    for name, times in operations.items():
        lines = [f"[{kind}] {times.reports[kind]}" for kind in _KINDS if kind in times.reports]
        blocks.append("\n".join([f"{name}:", *lines]) + "\n\n")
    return "".join(blocks)


def _as_csv(operations: dict[str, OperationTimes]) -> str:
    rows = [{"opname": name, **times.cells()} for name, times in operations.items()]
    columns = ["opname", *sorted({key for row in rows for key in row} - {"opname"})]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640
        )
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
