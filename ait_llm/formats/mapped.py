"""Mapped files that may become shorter while they are read.

The system ends a process that reads behind the end of a file. Where our native library is
installed, such reads give zeros instead; the file is noted, and nobody may use what was read.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.core.kernels import native_kernels
from ait_llm.errors import FormatError
from ait_llm.formats.elements import Array

_SHORTER = "became shorter while it was read"
_lock = threading.Lock()
_guarded: dict[int, Path | str] = {}  # files whose end nobody was told of, by their guards
_shortened: dict[str, None] = {}


class Guard:
    """Watches over one mapping, and ends with the object that holds it.

    Args:
        holder: the mapping or array that lives as long as the memory.
        address: of the first byte.
        size: in bytes.
        path: the file.
    """

    def __init__(self, holder: Any, address: int, size: int, path: Path | str) -> None:
        self._path = path
        kernels = native_kernels()
        self._number = -1 if kernels is None else kernels.guard(address, size)
        if self._number >= 0:
            with _lock:
                _guarded[self._number] = path
            weakref.finalize(holder, _end, self._number).atexit = False

    def check(self) -> None:
        """Make sure that all that was read so far was in the file.

        Raises:
            FormatError: it became shorter.
        """
        kernels = native_kernels()
        if self._number >= 0 and kernels is not None and kernels.is_hit(self._number):
            with _lock:
                _guarded.pop(self._number, None)
            raise FormatError(self._path, _SHORTER)


def _end(number: int) -> None:
    kernels = native_kernels()
    with _lock:
        path = _guarded.pop(number, None)
        if kernels is not None and kernels.end_guard(number) and path is not None:
            _shortened[str(path)] = None


def mapped(file: Any, offset: int, length: int, path: Path | str) -> Array:
    """Bytes of an open file, read when they are used.

    Args:
        file: open for reading; it may be closed afterwards.
        offset: of the first byte.
        length: how many, not 0.
        path: the file, for messages.
    """
    found = np.memmap(file, np.uint8, "r", offset, (length,))
    Guard(found.base, found.__array_interface__["data"][0], length, path)
    return found


def address_of(mapping: mmap.mmap) -> int:
    """Of the first byte."""
    return int(np.frombuffer(mapping, np.uint8).__array_interface__["data"][0])


@contextlib.contextmanager
def guarded(stretches: Mapping[int, int], path: Path | str) -> Iterator[None]:
    """Guard memory for a while.

    Args:
        stretches: sizes in bytes by address.
        path: the file.

    Raises:
        FormatError: it became shorter meanwhile.
    """
    holder = threading.Event()  # any object that can be referred to weakly
    guards = [Guard(holder, address, size, path) for address, size in stretches.items()]
    yield
    for guard in guards:
        guard.check()


def keep_guarded(array: Array, path: Path | str) -> None:
    """Guard an array over a mapping that was made elsewhere, as long as it lives."""
    holder = array
    while isinstance(holder.base, np.ndarray):
        holder = holder.base
    Guard(holder, array.__array_interface__["data"][0], array.nbytes, path)


def shortened() -> list[str]:
    """Files that became shorter while they were read, which no exception has told."""
    kernels = native_kernels()
    with _lock:
        for number in list(_guarded) if kernels is not None else ():
            if kernels is not None and kernels.is_hit(number):
                _shortened[str(_guarded.pop(number))] = None
        found = list(_shortened)
        _shortened.clear()
    return found
