"""File names in a dump of the graph engine.

``{type}.{name}.{task}.{stream}.{timestamp}``; tasks of FFTS+ add ``.4.{context}.{thread}.{device}``
and statistics add ``.csv``. Names that were too long for the file system are replaced by a number
and kept in ``mapping.csv``. Source: ``file_utils.cpp`` in hicann/runtime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.formats.opening import read_small

MAPPING_FILE = "mapping.csv"
STATISTICS_SUFFIX = ".csv"
OVERFLOW_TYPE = "Opdebug"
HASHED_NAME = re.compile(r"[0-9]{1,20}")
_NUMBER = re.compile(r"[0-9]{1,20}")
_FFTS_PLUS = "4"
_FFTS_PLUS_PARTS = 9
_MAX_MAPPING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class GeName:
    """What the name of a file says.

    Attributes:
        type: of the operator; ``unknown`` where the name was lost.
        name: of the operator, with spaces, dots and slashes replaced by underscores.
        task, stream: numbers of the task.
        timestamp: of its execution, microseconds since 1970.
        thread: of an FFTS+ task, else None.
        context: of an FFTS+ task, else None.
    """

    type: str
    name: str
    task: int
    stream: int
    timestamp: int
    thread: int | None = None
    context: int | None = None

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Sort key of execution order within a process."""
        return self.timestamp, self.task, self.context or 0, self.thread or 0


def parse_name(text: str) -> GeName | None:
    """Parse the name of a file, without ``.csv``; None if it is not one of a dump."""
    parts = text.split(".")
    if len(parts) == _FFTS_PLUS_PARTS and parts[5] == _FFTS_PLUS and _are_numbers(parts[2:]):
        task, stream, timestamp = map(int, parts[2:5])
        return GeName(parts[0], parts[1], task, stream, timestamp, int(parts[7]), int(parts[6]))
    if len(parts) < 5 or not _are_numbers(parts[-3:]) or not parts[0]:
        return None
    task, stream, timestamp = map(int, parts[-3:])
    return GeName(parts[0], ".".join(parts[1:-3]), task, stream, timestamp)


def escape(name: str) -> str:
    """An operator's name as it stands in the name of a file."""
    return re.sub(r"[ ./\\]", "_", name)


def read_mapping(path: Path) -> dict[str, str]:
    """Real names by the number under which a file is stored.

    Raises:
        FormatError: the file cannot be read or is not such a table.
    """
    data = read_small(path, _MAX_MAPPING_BYTES)
    names = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        key, comma, name = line.strip().partition(",")
        if not key and not comma:
            continue
        if not comma or HASHED_NAME.fullmatch(key.removesuffix(STATISTICS_SUFFIX)) is None:
            if number == 1:  # a heading
                continue
            raise FormatError(path, f"line {number} is not a number and a name")
        names[key] = name.strip().rsplit("/", 1)[-1]
    return names


def _are_numbers(parts: list[str]) -> bool:
    return all(_NUMBER.fullmatch(part) is not None for part in parts)
