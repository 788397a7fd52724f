"""A process of its own that decodes one JSON file and hands over the rows of its records.

It is this package started anew, so it works in any program, with threads or without. What comes
through the pipe was made by ourselves: batches of plain tuples, and at the end how it ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ait_llm.compare.api.item import items_of
from ait_llm.dumps.api_json import UnfinishedError
from ait_llm.dumps.api_stream import content_of, read_records
from ait_llm.errors import AitError, FormatError
from ait_llm.faults import FaultElsewhereError, trace_of

# Name, offset, length and the fields of each item.
Row = tuple[str, int, int, list[tuple[Any, ...]]]

_BATCH = 256  # records, or
_BATCH_BYTES = 1 << 20  # of JSON
_PIPE_BYTES = 1 << 20  # so that the process works on while a batch is taken
_HEAD = struct.Struct("=QI")  # length and CRC-32 of a message
# The path of modules is ours: a file named json.py where the user is must not be imported.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from ait_llm.compare.api.reader import main; main(sys.argv[1])"
)


class ReaderError(AitError):
    """The process that reads a file ended before it was done."""


@contextlib.contextmanager
def read_apart(path: Path) -> Iterator[Iterator[Row]]:
    """Records of a file, decoded by another process, which ends with the block.

    Raises:
        FormatError: the file is malformed.
        UnfinishedError: it breaks off.
        ReaderError: the process was killed, or could not be started.
        FaultElsewhereError: an exception that nobody foresaw ended it.
    """
    words = [sys.executable, "-c", _PROGRAM, str(path), *filter(_is_text, sys.path)]
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        raise ReaderError(f"{path}: no process to read it ({error.strerror}); {_NEXT}") from error
    with process:
        try:
            assert process.stdout is not None
            with contextlib.suppress(OSError):  # more than an ordinary user may have
                fcntl.fcntl(process.stdout, _SET_PIPE_SIZE, _PIPE_BYTES)
            yield _received(path, process.stdout)
        finally:
            process.kill()


def _received(path: Path, source: IO[bytes]) -> Iterator[Row]:
    while (batch := _receive(source)) is not None:
        if isinstance(batch, tuple):
            _raise(path, *batch)
            return
        yield from batch
    raise ReaderError(f"{path}: the process that read it ended early; {_NEXT}")


_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_NEXT = "there may be too little memory; use --jobs 1 to read in one process"


def main(path: str) -> None:
    """Read a file and write its records to stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started this ends it
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    gc.disable()  # nothing here is part of a cycle
    batch: list[Row] = []
    size = 0
    end: tuple[str, ...] = ()
    try:
        for member in read_records(Path(path)):
            content = content_of(Path(path), member.key, member.value)
            items = list(map(tuple, items_of(member.key, content)))
            batch.append((member.key, member.offset, member.length, items))
            size += member.length
            if len(batch) >= _BATCH or size >= _BATCH_BYTES:
                _send(batch)
                batch, size = [], 0
    except FormatError as error:
        end = (type(error).__name__, error.reason, error.advice)
    except Exception as error:  # noqa: BLE001  raised again where this was started
        end = (FaultElsewhereError.__name__, trace_of(error))
    _send(batch)
    _send(end)


def _send(message: list[Row] | tuple[str, ...]) -> None:
    data = marshal.dumps(message)
    # not by sys.stdout: its buffer loses data when a process is stopped within a write and goes on
    left = memoryview(_HEAD.pack(len(data), zlib.crc32(data)) + data)
    while left:
        left = left[os.write(1, left) :]


def _receive(source: IO[bytes]) -> Any:
    """The next message; None if there is none, or only a part of it."""
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    size, checksum = _HEAD.unpack(head)
    data = source.read(size)
    is_whole = len(data) == size and zlib.crc32(data) == checksum
    return marshal.loads(data) if is_whole else None


def _raise(path: Path, kind: str = "", reason: str = "", advice: str = "") -> None:
    if kind == FaultElsewhereError.__name__:
        raise FaultElsewhereError(reason)
    if kind:
        raise (UnfinishedError if kind == "UnfinishedError" else FormatError)(path, reason, advice)


def _is_text(entry: object) -> bool:
    return isinstance(entry, str)
