"""A dump as a trace for Perfetto and Chrome: operators as slices, their errors as counters.

The format is the JSON of the Trace Event Format. The tables of the acceleration library have
durations and no moments, so operations are laid one after another in the order in which they ran.
Where a table has no time, or the dump no table, an operator is one microsecond wide.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ait_llm import __version__
from ait_llm.core.comparison import Report
from ait_llm.dumps import Dump, Operation
from ait_llm.export.operator_errors import Key, OperatorError, key_of, operator_errors
from ait_llm.export.profile import Times, read_profiles
from ait_llm.formats.writing import new_file

Event = dict[str, Any]  # one JSON object
_STEPS, _SETUP, _OPERATORS = 1, 2, 3  # threads of the trace
_GAP = 1  # microseconds between steps


@dataclass(slots=True)
class Traced:
    """What a trace has.

    Attributes:
        operations: slices of operators and graphs.
        timed: top-level operations whose time a table has.
        errors: operators with a number of the report.
    """

    operations: int = 0
    timed: int = 0
    errors: int = 0


def export_trace(dump: Dump, file: Path, report: Report | None = None) -> Traced:
    """Write the trace of a dump.

    Args:
        dump: any dump.
        file: replaced when everything is written.
        report: of a comparison with this dump on one side.

    Raises:
        UsageError: the report is of other dumps.
        FormatError: a table or folder cannot be read, or the file cannot be written.
    """
    errors = {} if report is None else operator_errors(report, dump)
    profiles = read_profiles(dump)
    result = Traced()
    with new_file(file) as target:
        text = _Text(target)
        text.begin()
        for (pid, device), operations in groupby(
            dump.operations(), key=lambda each: (each.pid, each.device)
        ):
            for event in _process(pid, device, operations, profiles, errors, result):
                text.add(event)
        text.end()
    return result


class _Text:
    """Events, one a line, as they come."""

    def __init__(self, target: Any) -> None:  # a binary file
        self._target = target
        self._first = True

    def begin(self) -> None:
        about = json.dumps({"tool": f"ait-llm {__version__}"})
        self._target.write(
            f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n'.encode()
        )

    def add(self, event: Event) -> None:
        comma = "" if self._first else ",\n"
        self._first = False
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        self._target.write(f"{comma}{text}".encode("utf-8", "backslashreplace"))

    def end(self) -> None:
        self._target.write(b"\n]}\n")


def _process(
    pid: int,
    device: int,
    operations: Iterable[Operation],
    profiles: dict[tuple[int, int, str], Times],
    errors: dict[Key, OperatorError],
    result: Traced,
) -> Iterator[Event]:
    """The events of one process, step by step."""
    number = max(pid, 0)
    name = f"device {device}" if device >= 0 else "process"
    yield _meta(number, 0, "process_name", f"{name} (pid {pid})" if pid >= 0 else name)
    yield _meta(number, _STEPS, "thread_name", "steps")
    yield _meta(number, _SETUP, "thread_name", "setup on the host")
    yield _meta(number, _OPERATORS, "thread_name", "operators")
    now = 0
    for step, of_step in groupby(operations, key=lambda each: each.step):
        begin = now
        for top in _tops(of_step):
            times = profiles.get((pid, step, top[0].name))
            result.operations += len(top)
            spent = times or {}
            setup, execute = spent.get("setup_totalTime", 0), spent.get("execute_totalTime", 0)
            result.timed += setup + execute > 0
            if setup:
                yield _slice(number, _SETUP, top[0].name, now, setup, dict(spent))
                now += setup
            leaves = sum(not each.is_graph for each in top) or 1
            width = max(execute, leaves)
            yield from _operators(number, top, now, width / leaves, spent, errors, result)
            now += width
        yield _slice(number, _STEPS, f"step {step}", begin, now - begin, {})
        now += _GAP


def _tops(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Each top-level operation with what it consists of, a graph before its members."""
    group: list[Operation] = []
    for operation in operations:
        inside = group and operation.op_id != group[0].op_id
        inside = inside and operation.op_id.is_within(group[0].op_id) and group[0].is_graph
        if group and not inside:
            yield group
            group = []
        group.append(operation)
    if group:
        yield group


def _operators(
    number: int,
    top: list[Operation],
    begin: float,
    width: float,
    times: Times,
    errors: dict[Key, OperatorError],
    result: Traced,
) -> Iterator[Event]:
    """Slices in one another, of equal width at the bottom, with their counters."""
    place = 0
    for index, operation in enumerate(top):
        size = 1
        if operation.is_graph:
            inside = top[index + 1 :]
            size = sum(
                not each.is_graph and each.op_id.is_within(operation.op_id) for each in inside
            )
        start = begin + place * width
        about: Event = {"type": operation.type, "id": str(operation.op_id), "step": operation.step}
        if index == 0:
            about |= times
        error = errors.get(key_of(operation))
        if error is not None:
            about["verdict"] = "FAIL" if error.failed else "PASS"
        yield _slice(number, _OPERATORS, operation.full_name, start, size * width, about)
        if operation.is_graph:
            continue
        place += 1
        if error is not None:
            counter = list(_counter(number, start, error))
            result.errors += len(counter)
            yield from counter


def _counter(number: int, start: float, error: OperatorError) -> Iterator[Event]:
    known = {"relative": error.relative, "introduced": error.introduced}
    values = {name: value for name, value in known.items() if value is not None}
    if values:
        yield {"ph": "C", "pid": number, "ts": start, "name": "error", "args": values}


def _slice(number: int, thread: int, name: str, begin: float, width: float, about: Event) -> Event:
    place = {"ph": "X", "pid": number, "tid": thread, "ts": begin, "dur": width}
    return {**place, "name": name, "cat": "ait", "args": about}


def _meta(number: int, thread: int, kind: str, name: str) -> Event:
    return {"ph": "M", "pid": number, "tid": thread, "name": kind, "args": {"name": name}}
