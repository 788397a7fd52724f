"""The records of one side as the rows that tables show of them, one record at a time.

Decoding a large file takes about as long as everything that is done with its rows, so a process of
its own does it where there is a processor for it; see :mod:`ait_llm.compare.api.reader`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ait_llm.compare.api.item import Item, items_of
from ait_llm.compare.api.reader import Row, read_apart
from ait_llm.compare.api.sides import ApiSide
from ait_llm.dumps.api_json import Member, UnfinishedError, read_value
from ait_llm.dumps.api_stream import content_of, read_records

# Below it, starting a process takes longer than reading.
_APART_BYTES = 8 << 20
_LENGTH_BITS = 32


class Record(NamedTuple):
    """One record of a dump.

    Attributes:
        name: its key in the file.
        items: its rows.
        place: where it lies, for :class:`Places`.
    """

    name: str
    items: list[Item]
    place: int = 0


class Places:
    """Reads records of one file again; a place is one number, because millions may be kept."""

    def __init__(self, side: ApiSide) -> None:
        self._side = side

    def items(self, name: str, place: int) -> list[Item]:
        """Rows of the record at a place.

        Raises:
            FormatError: the file has changed meanwhile.
        """
        offset, length = place >> _LENGTH_BITS, place & ((1 << _LENGTH_BITS) - 1)
        path = self._side.place.path
        value = read_value(path, offset, length)
        return items_of(name, content_of(path, name, value))


@contextlib.contextmanager
def read_side(
    side: ApiSide, on_problem: Callable[[str], None], *, apart: bool = False
) -> Iterator[Iterator[Record]]:
    """Records up to where the file of a killed process breaks off.

    Args:
        side: the file.
        on_problem: told in a sentence if it breaks off.
        apart: decode it in a process of its own if it is large; it begins with the block.

    Raises:
        FormatError: the file is malformed.
        ReaderError: the process was killed, or could not be started.
    """
    path = side.place.path
    if apart and sys.executable and path.stat().st_size >= _APART_BYTES:
        with read_apart(path) as rows:
            yield _unbroken(map(_record, rows), on_problem)
    else:
        yield _unbroken(map(partial(_decoded, path), read_records(path)), on_problem)


def _unbroken(records: Iterator[Record], on_problem: Callable[[str], None]) -> Iterator[Record]:
    try:
        yield from records
    except UnfinishedError as error:
        on_problem(str(error))


def _record(row: Row) -> Record:
    name, offset, length, items = row
    return Record(name, list(map(Item._make, items)), _place(offset, length))


def _decoded(path: Path, member: Member) -> Record:
    items = items_of(member.key, content_of(path, member.key, member.value))
    return Record(member.key, items, _place(member.offset, member.length))


def _place(offset: int, length: int) -> int:
    return offset << _LENGTH_BITS | length
