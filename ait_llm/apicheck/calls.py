"""The calls of a dump: each forward record with its backward record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.dumps import ApiDump, open_dump
from ait_llm.dumps.api_records import ApiCall
from ait_llm.errors import FormatError

# What may differ between two calls that are the same but for their values.
_VALUES = ("Max", "Min", "Mean", "Norm", "md5", "data_name")


@dataclass(frozen=True, slots=True)
class Call:
    """One call; only the place of its records is kept, not what they say.

    Attributes:
        name: ``Functional.linear.0``.
        forward: its record.
        backward: the record of its backward pass, None without one.
        root: folder of the dump.
    """

    name: str
    forward: ApiCall
    backward: ApiCall | None
    root: Path


@dataclass(frozen=True, slots=True)
class CallFile:
    """One ``dump.json``.

    Attributes:
        path: the file.
        suffix: what tells its tables from those of other ranks and steps.
        calls: in the order of the file.
        problems: what is wrong with it as a whole.
    """

    path: Path
    suffix: str
    calls: tuple[Call, ...]
    problems: tuple[str, ...]


def read_calls(paths: Sequence[Path]) -> list[CallFile]:
    """The calls of some dumps, file by file.

    Args:
        paths: each a ``dump.json`` or a folder of a dump of level L1 or mix.

    Raises:
        FormatError: a path is no such dump, or has no calls of functions.
    """
    files: list[tuple[ApiDump, Path, list[ApiCall]]] = []
    for path in dict.fromkeys(paths):
        dump = open_dump(path)
        if not isinstance(dump, ApiDump):
            raise FormatError(
                path, f"is a dump of the kind {dump.kind!r}", "Give a dump.json of level L1 or mix"
            )
        by_file: dict[Path, list[ApiCall]] = {}
        for record in dump.calls():
            if not record.parsed.is_module and record.direction in ("forward", "backward"):
                by_file.setdefault(record.path, []).append(record)
        if not by_file:
            raise FormatError(
                path, "has no calls of functions", "Capture again with level L1 or mix"
            )
        files += [(dump, file, records) for file, records in by_file.items()]
    suffixes = _suffixes([records[0] for _, _, records in files])
    return [
        CallFile(file, suffix, tuple(_pair(records, dump.root)), _problems(dump, records[0]))
        for (dump, file, records), suffix in zip(files, suffixes, strict=True)
    ]


def without_repeats(calls: Iterable[Call]) -> list[Call]:
    """The first of all calls of one function whose arguments differ in their values only."""
    seen: set[str] = set()
    kept: list[Call] = []
    for call in calls:
        arguments = [
            (value.label, _without_values(value.recorded))
            for value in call.forward.values
            if value.section == "input"
        ]
        has_backward = call.backward is not None
        key = json.dumps([call.forward.api_name, has_backward, arguments], sort_keys=True)
        if key not in seen:
            seen.add(key)
            kept.append(call)
    return kept


def _without_values(recorded: Any) -> Any:
    if not isinstance(recorded, dict):
        return recorded
    return {key: each for key, each in recorded.items() if key not in _VALUES}


def _pair(records: Sequence[ApiCall], root: Path) -> list[Call]:
    backward = {
        (record.api_name, record.call): record
        for record in records
        if record.direction == "backward"
    }
    return [
        Call(
            name=f"{record.api_name}.{record.call}",
            forward=record,
            backward=backward.get((record.api_name, record.call)),
            root=root,
        )
        for record in records
        if record.direction == "forward"
    ]


def _problems(dump: ApiDump, record: ApiCall) -> tuple[str, ...]:
    """Of the file in which a record lies: whether it breaks off."""
    return tuple(
        remark
        for process in dump.processes
        if (process.device, process.pid) == (record.device, record.pid)
        for remark in process.remarks
        if f"of step {record.step} " in remark
    )


def _suffixes(records: Sequence[ApiCall]) -> list[str]:
    """``_rank1``, ``_step2_rank0``: as much as tells the files apart."""
    steps = len({record.step for record in records}) > 1
    found: list[str] = []
    for record in records:
        name = f"_step{record.step}" if steps else ""
        if len(records) > 1:
            number = record.device if record.device >= 0 else record.pid
            name += f"_{'rank' if record.device >= 0 else 'proc'}{number}"
        if name in found or (not name and len(records) > 1):
            name += f"_{len(found)}"
        found.append(name)
    return found
