"""The files of one execution of a model, from their names."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ait_llm.dumps.ge_names import (
    HASHED_NAME,
    MAPPING_FILE,
    STATISTICS_SUFFIX,
    GeName,
    escape,
    parse_name,
    read_mapping,
)
from ait_llm.dumps.ge_place import scan
from ait_llm.errors import FormatError
from ait_llm.formats.ge_file import read_ge
from ait_llm.formats.opening import contained_file

UNKNOWN_TYPE = "unknown"
# What msaccucmp's own conversion leaves beside the dump files.
_CONVERTED = (".npy", ".bin")


@dataclass(frozen=True, slots=True)
class GeEntry:
    """One execution of one operator.

    Attributes:
        name: what the name of its file says.
        path: the dump file; None if there are only statistics.
        table: the table of statistics; None without one.
    """

    name: GeName
    path: str | None
    table: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A folder of dump files.

    Attributes:
        files: in execution order.
        problems: names of files that are none of a dump, with the reason.
    """

    files: tuple[GeEntry, ...]
    problems: tuple[tuple[str, str], ...]


def list_files(folder: str, root: Path) -> Listed:
    """List the dump files of a folder; only names are read, and ``mapping.csv``.

    A file whose real name was lost is opened for the name in its header.

    Raises:
        FormatError: the folder cannot be listed.
    """
    entries = sorted(entry.name for entry in scan(folder) if not entry.is_dir())
    present = set(entries)
    mapping, problems = _mapping(folder, root) if MAPPING_FILE in present else ({}, [])
    found: dict[tuple[GeName, str], GeEntry] = {}
    for stored in entries:
        if stored == MAPPING_FILE:
            continue
        path = f"{folder}/{stored}"
        real = mapping.get(stored, stored)
        if real is stored and mapping and stored.endswith(STATISTICS_SUFFIX):
            real = mapping.get(stored.removesuffix(STATISTICS_SUFFIX), stored)
            real += STATISTICS_SUFFIX if not real.endswith(STATISTICS_SUFFIX) else ""
        is_table = real.endswith(STATISTICS_SUFFIX)
        stem = real.removesuffix(STATISTICS_SUFFIX) if is_table else real
        name = parse_name(stem)
        if name is None:
            if HASHED_NAME.fullmatch(stem) and not is_table:
                recovered = _from_header(path, stem, root)
                if isinstance(recovered, GeName):
                    found[recovered, stem] = GeEntry(recovered, path, None)
                else:
                    problems.append((stored, recovered))
            elif not _is_converted(stem, present):
                problems.append((stored, "its name is not that of a dump file"))
            continue
        name = replace(name, type=sys.intern(name.type))
        known = found.get((name, stem)) or GeEntry(name, None, None)
        found[name, stem] = replace(known, table=path) if is_table else replace(known, path=path)
    for number in sorted(mapping.keys() - present):
        if mapping[number] not in present:
            problems.append((number, f"is listed in {MAPPING_FILE} and not there"))
    ordered = sorted(found.items(), key=lambda item: (item[0][0].order, item[0][1]))
    return Listed(tuple(entry for _, entry in ordered), tuple(problems))


def _mapping(folder: str, root: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
    path = f"{folder}/{MAPPING_FILE}"
    try:
        return read_mapping(Path(contained_file(path, root))), []
    except FormatError as error:
        return {}, [(MAPPING_FILE, error.reason)]


def _from_header(path: str, number: str, root: Path) -> GeName | str:
    """What the header says of a file without a name, or why it says nothing."""
    try:
        description = read_ge(contained_file(path, root)).description
    except FormatError as error:
        return f"is not in {MAPPING_FILE}, and {error.reason}"
    name = escape(description.op_name) or number
    return GeName(UNKNOWN_TYPE, name, 0, 0, description.time)


def _is_converted(name: str, present: set[str]) -> bool:
    if not name.endswith(_CONVERTED):
        return False
    stem = name.rpartition(".")[0]
    while stem:
        if stem in present:
            return True
        stem = stem.rpartition(".")[0]
    return False
