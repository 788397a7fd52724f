"""The report as JSON lines: written while comparing, so that a killed run leaves a valid part."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO

from ait_llm.core.comparison import Comparison, Report
from ait_llm.errors import FormatError, UsageError
from ait_llm.report import jsonl_records as records
from ait_llm.report.files import FILE_MODE, replacing
from ait_llm.report.writing import writers

MAX_LINE_BYTES = 16 << 20
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
FLUSH_SECONDS = 0.25  # what a kill may cost
FIRST_SECONDS = 5.0  # without any line: a report that is finished by then needs none on the way


def line(data: records.Object) -> str:
    """One object as a line of ASCII."""
    return _ENCODER.encode(data) + "\n"


def lines(report: Report) -> Iterator[str]:
    """All lines of a finished report."""
    yield line(records.header(report))
    for index, item in enumerate(report.comparisons):
        yield line(records.comparison(index, item))
    yield from _end(report)


def _end(report: Report) -> Iterator[str]:
    for problem in report.problems:
        yield line(records.problem(problem))
    for origin in report.origins:
        yield line(records.origin(origin))
    for row in report.ledger:
        yield line(records.ledger_row(row))
    for closeup in report.closeups:
        yield line(records.closeup(closeup))
    yield line(records.total(report))


@writers.register("jsonl")
def write_jsonl(report: Report, path: Path) -> Sequence[Path]:
    """Write a whole report."""
    with replacing(path) as file:
        file.writelines(lines(report))
    return (path,)


class JsonlWriter:
    """Writes comparisons as they come, in any order.

    Use it as a context manager. Only :meth:`finish` makes the report whole; until then, and after
    an exception or a kill, :func:`read_jsonl` reads the same file as a partial report.

    Args:
        path: file to create; it replaces an older one.
        report: sides, scenario, metrics, options and start; its comparisons are ignored.

    Raises:
        UsageError: the file cannot be created.
    """

    def __init__(self, path: Path, report: Report) -> None:
        self.path = path
        self._flushed = time.monotonic()
        self._waiting: list[tuple[int, Comparison]] | None = []
        self._lock = threading.Lock()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file: IO[str] = os.fdopen(
                os.open(path, flags, FILE_MODE), "w", encoding="ascii", newline=""
            )
            self._file.write(line(records.header(report)))
            self._file.flush()
        except OSError as error:
            raise self._error(error) from error
        self._begins = threading.Timer(FIRST_SECONDS, self._begin)
        self._begins.daemon = True
        self._begins.start()

    def add(self, index: int, item: Comparison) -> None:
        """Write one comparison; ``index`` is its place in the report.

        Raises:
            UsageError: the disk does not take it.
        """
        with self._lock:
            if self._waiting is not None:
                self._waiting.append((index, item))
                return
        try:
            self._file.write(line(records.comparison(index, item)))
            now = time.monotonic()
            if now - self._flushed > FLUSH_SECONDS:
                self._file.flush()
                self._flushed = now
        except OSError as error:
            raise self._error(error) from error

    def finish(self, report: Report) -> None:
        """Write problems, origins and totals.

        Raises:
            UsageError: the disk does not take it.
        """
        self._begins.cancel()
        try:
            self._write_waiting()
            self._file.writelines(_end(report))
            self._file.close()
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file as a part of a report."""
        self._begins.cancel()
        with contextlib.suppress(OSError):  # the reader copes with a line that was cut
            try:
                self._write_waiting()
            finally:
                self._file.close()

    def discard(self) -> None:
        """Close the file and delete it: the report is whole, or there is nothing in it."""
        with self._lock:
            self._waiting = None
        self.close()
        with contextlib.suppress(OSError):  # its folder was taken away, and the file with it
            self.path.unlink()

    def _begin(self) -> None:
        """Write what came until now; what comes from now on is written at once."""
        with contextlib.suppress(OSError):  # who adds the next one is told
            self._write_waiting()

    def _write_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
            if waiting and not self._file.closed:
                self._file.writelines(line(records.comparison(*each)) for each in waiting)
                self._file.flush()  # before anybody else writes

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _error(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self.path}: the report cannot be written ({error.strerror or error}); "
            "choose another folder with --output"
        )


def read_jsonl(path: Path | str) -> Report:
    """Read a report that was written as jsonl, whole or cut off at any byte.

    Comparisons come in the order of their index; where one was written twice, the later one counts.
    A report without its last line is partial. Its last line may be incomplete; any other damage is
    an error.

    Raises:
        FormatError: it cannot be read, or is no such report.
    """
    path = Path(path)
    found: dict[int, Comparison] = {}
    problems, origins, ledger, closeups = [], [], [], []
    report: Report | None = None
    end: records.Object = {}
    for number, data in _objects(path):
        if report is None:
            report = _read_header(path, data)
            continue
        try:
            kind = data["type"]
            if kind == "comparison":
                found[_index(data["index"])] = records.read_comparison(data)
            elif kind == "problem":
                problems.append(records.read_problem(data))
            elif kind == "origin":
                origins.append(records.read_origin(data))
            elif kind == "ledger":
                ledger.append(records.read_ledger_row(data))
            elif kind == "closeup":
                closeups.append(records.read_closeup(data))
            elif kind == "total":
                end = records.read_total(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(
                path, f"line {number} is damaged ({type(error).__name__}: {error})"
            ) from error
    if report is None:
        raise FormatError(path, "it is empty", "Compare again without --resume")
    report = replace(
        report,
        comparisons=tuple(found[index] for index in sorted(found)),
        problems=tuple(problems),
        origins=tuple(origins),
        ledger=tuple(ledger),
        closeups=tuple(closeups),
        partial=True,
    )
    return replace(report, **end)


def _objects(path: Path) -> Iterator[tuple[int, records.Object]]:
    """The objects of the complete lines, with their line numbers from 1."""
    try:
        with path.open("rb") as file:
            for number, text in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
                if not text.endswith(b"\n"):
                    if len(text) == MAX_LINE_BYTES:
                        raise FormatError(path, f"line {number} is too long for a report")
                    return  # the writer was stopped here
                try:
                    data = json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise FormatError(path, f"line {number} is not JSON: {error}") from error
                if not isinstance(data, dict):
                    raise FormatError(path, f"line {number} is not an object")
                yield number, data
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def _read_header(path: Path, data: records.Object) -> Report:
    if data.get("schema") != records.SCHEMA:
        raise FormatError(
            path,
            "it is no report of a comparison",
            "Give a .jsonl file that ait llm compare wrote",
        )
    if data.get("version") != records.VERSION:
        raise FormatError(
            path,
            f"it has version {data.get('version')} of the schema and this is version "
            f"{records.VERSION}",
            "Compare again, or read it with the version of ait-llm that wrote it",
        )
    try:
        return Report(
            golden=records.read_side(data["golden"]),
            mine=records.read_side(data["mine"]),
            comparisons=(),
            partial=True,
            **records.read_header(data),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(
            path, f"its header is damaged ({type(error).__name__}: {error})"
        ) from error


def _index(value: records.Json) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no index")
    return value
