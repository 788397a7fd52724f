"""The records of one ``dump.json`` or ``debug.json``, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ait_llm.dumps.api_json import Member, UnfinishedError, read_members
from ait_llm.errors import FormatError


def read_records(path: Path) -> Iterator[Member]:
    """Records in the order of the file; only the one at hand is in memory.

    A process that was killed may have written a record again when more of it was known: the
    gradients of a module's parameters and of saved variables come one by one. The last counts.

    Raises:
        FormatError: the file is malformed; line and column are named.
        UnfinishedError: it breaks off, after the records that are whole.
    """
    return _last_of_all(path) if path.name == "debug.json" else _last_of_a_row(path)


def content_of(path: Path, name: str, value: Any) -> Mapping[str, Any]:
    """What a record holds; a variable that a program saved may be a bare value.

    Raises:
        FormatError: it is no object.
    """
    if isinstance(value, dict):
        return value
    if path.name == "debug.json":
        return {"": value}
    raise FormatError(path, f"the record {name!r} is not an object")


def _last_of_a_row(path: Path) -> Iterator[Member]:
    latest: Member | None = None
    try:
        for member in read_members(path, ("data",)):
            if member.parent == "data":
                if latest is not None and latest.key != member.key:
                    yield latest
                latest = member
    except UnfinishedError:
        if latest is not None:
            yield latest
        raise
    if latest is not None:
        yield latest


def _last_of_all(path: Path) -> Iterator[Member]:
    """Of a file with few records, which may repeat in any order."""
    latest: dict[str, Member] = {}
    try:
        for member in read_members(path, ("data",)):
            if member.parent == "data":
                latest[member.key] = member
    except UnfinishedError:
        yield from latest.values()
        raise
    yield from latest.values()
