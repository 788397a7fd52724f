"""Files written by native code, with descriptors that the rest of the program cannot reach.

A program that becomes a daemon closes every descriptor that it did not open itself. A file that is
open in that moment loses its number, and another file may be given it.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ait_llm.core.kernels import NativeKernels, Piece

_BEGIN, _END = 1, 2
_NOTHING = Piece(b"", 0, 0)
_CHUNK = 1 << 22


class _Order(ctypes.Structure):
    """``AitOrder`` of ait_statistics.h."""

    _fields_ = (
        ("temporary", ctypes.c_char_p),
        ("path", ctypes.c_char_p),
        ("head", ctypes.POINTER(Piece)),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("tail", ctypes.POINTER(Piece)),
        ("flags", ctypes.c_int),
        ("error", ctypes.c_int),
    )


class FileOrder(NamedTuple):
    """One file: what precedes the data, where they are, and what follows them.

    The CRC-32 of the data is put into both pieces. The file has its name when it is complete.
    """

    path: bytes
    head: Piece
    address: int
    size: int
    tail: Piece


def write_files(kernels: NativeKernels, orders: Sequence[FileOrder]) -> list[int]:
    """Write the files in their order; for each an errno, 0 if it is there."""
    if kernels.write_files is None:
        return [_error_of(kernels, order) for order in orders]
    array = (_Order * len(orders))()
    for place, (path, head, address, size, tail) in zip(array, orders, strict=True):
        place.temporary, place.path = path + b".part", path
        place.head, place.data, place.size = ctypes.pointer(head), address, size
        place.tail, place.flags = ctypes.pointer(tail), _BEGIN | _END
    kernels.write_files(ctypes.byref(array), len(orders))
    return [place.error for place in array]


def _error_of(kernels: NativeKernels, order: FileOrder) -> int:
    path, head, address, size, tail = order
    try:
        kernels.write_file(path + b".part", path, head, address, size, tail)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


class OwnFile(io.RawIOBase):
    """A file to write from its begin to its end, which has its name after :meth:`finish`.

    Args:
        kernels: the native library.
        path: an earlier file is replaced.
    """

    def __init__(self, kernels: NativeKernels, path: str) -> None:
        assert kernels.write_files is not None  # a library of an earlier version has no such files
        self._write_files = kernels.write_files
        self._path = path
        self._gathered = bytearray()
        self._begun = False

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: object) -> int:
        """Append the bytes of ``data``.

        Raises:
            OSError: the file cannot be written.
        """
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # what io calls a buffer
        self._gathered += view
        if len(self._gathered) >= _CHUNK:
            self._pass_on(0)
        return len(view)

    def finish(self) -> None:
        """Write what is left, and give the file its name.

        Raises:
            OSError: the file cannot be written.
        """
        self._pass_on(_END)

    def discard(self) -> None:
        """Remove what was written."""
        Path(f"{self._path}.part").unlink(missing_ok=True)

    def _pass_on(self, flags: int) -> None:
        data = bytes(self._gathered)
        self._gathered.clear()
        path = os.fsencode(self._path)
        order = _Order(
            path + b".part",
            path,
            ctypes.pointer(Piece(data, len(data), len(data))),
            None,
            0,
            ctypes.pointer(_NOTHING),
            flags | (0 if self._begun else _BEGIN),
        )
        self._write_files(ctypes.byref(order), 1)
        self._begun = True
        if order.error:
            raise OSError(order.error, os.strerror(order.error), self._path)
