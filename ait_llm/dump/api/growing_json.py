"""A JSON file that is complete at every moment, although it grows with the run.

Each write ends with the brackets that close the file and begins where the last one's began. What a
killed process had recorded is therefore there, in a file that any reader takes, and writing N
records costs N writes. ``json`` of the standard library reads the bare ``NaN`` and ``Infinity``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ait_llm.dump.held_file import HeldFile

_ENCODER = json.JSONEncoder()
encode = _ENCODER.encode


class _Place(NamedTuple):
    order: float
    name: str
    offset: int
    length: int


class GrowingJson:
    """``{head..., "data": {name: record, ...}}``, or only the records.

    Args:
        path: an earlier file there is replaced.
        head: entries ahead of ``data``; None for a file of records alone.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path, head: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._close = b"\n}\n" if head is None else b"\n}}\n"
        start = b"{" if head is None else encode(dict(head))[:-1].encode() + b', "data": {'
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # never through a link, and never into a file somebody else reads
        self._file: HeldFile | None = HeldFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._places: list[_Place] = []
        self._start = self._end = len(start)
        self._size = 0
        self._sorted = True
        self._latest = -1.0
        self._open: dict[str, str] = {}
        self._write(start, 0)
        self._commit(b"")

    def begin(self, name: str, record: str) -> None:
        """Have the first part of a record in the file while the call is still running."""
        self._open[name] = record
        self._commit(b"")

    def end(self, name: str, record: str | None, order: float) -> None:
        """Have the whole record in the file.

        Args:
            name: its key.
            record: JSON text; None to drop what :meth:`begin` wrote.
            order: its place among the others when the file is finished.
        """
        self._open.pop(name, None)
        if record is None:
            self._commit(b"")
            return
        comma = "," if self._places else ""
        text = f"{comma}\n{encode(name)}: {record}".encode()
        skip = len(comma)
        self._places.append(_Place(order, name, self._end + skip, len(text) - skip))
        self._sorted = self._sorted and order >= self._latest
        self._latest = order
        self._commit(text)

    def __len__(self) -> int:
        return len(self._places)

    def finish(self) -> None:
        """Write the records in their order, each name once, and close the file."""
        if self._file is None:
            return
        for name, record in list(self._open.items()):
            self.end(name, record, self._latest)
        last = {place.name: place for place in self._places}
        if not self._sorted or len(last) < len(self._places):
            self._rewrite(sorted(last.values(), key=lambda place: place.order))
        self._file.close()
        self._file = None

    def _commit(self, sealed: bytes) -> None:
        """Append what is complete, then what is open, then the end of the file."""
        comma = "," if self._places else ""
        tail = ""
        for name, record in self._open.items():
            tail += f"{comma}\n{encode(name)}: {record}"
            comma = ","
        data = sealed + tail.encode() + self._close
        self._write(data, self._end)
        size = self._end + len(data)
        if size < self._size:
            os.ftruncate(self._descriptor(), size)
        self._size = size
        self._end += len(sealed)

    def _write(self, data: bytes, offset: int) -> None:
        file = self._descriptor()
        while data:
            written = os.pwrite(file, data, offset)
            data, offset = data[written:], offset + written

    def _descriptor(self) -> int:
        assert self._file is not None  # nothing is added to a finished file
        return self._file.descriptor()

    def _rewrite(self, places: list[_Place]) -> None:
        """The same file in another order, put in its place when it is complete."""
        temporary = self.path.with_name(f"{self.path.name}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o640), "wb") as file:
            held = self._descriptor()
            file.write(os.pread(held, self._start, 0))
            for number, place in enumerate(places):
                file.write(b",\n" if number else b"\n")
                file.write(os.pread(held, place.length, place.offset).removeprefix(b"\n"))
            file.write(self._close)
        shutil.move(temporary, self.path)
