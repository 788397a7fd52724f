"""A file that stays open in a program that may close what it did not open.

Daemons close every descriptor that they inherited, and the numbers are then given to files of their
own: what is written to a number that was kept would end in those.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from pathlib import Path

# Programs are given the lowest free number: above most of theirs, one that was closed stays free.
_NUMBERS = 1024
_ONCE = os.O_CREAT | os.O_EXCL | os.O_TRUNC  # not when it is opened again


class HeldFile:
    """An open file, opened again where somebody closed its descriptor.

    Args:
        path: of it.
        flags: as for ``os.open``; it is closed when the program becomes another one.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path | str, flags: int) -> None:
        self.path = path
        self._flags = flags | os.O_CLOEXEC
        self._file = _apart(os.open(path, self._flags, 0o640))
        self._identity = _identity(self._file)

    @property
    def is_linked(self) -> bool:
        """False if somebody deleted it."""
        try:
            return os.fstat(self.descriptor()).st_nlink > 0
        except OSError:
            return False

    def descriptor(self) -> int:
        """A descriptor of this very file, to be used at once.

        Raises:
            OSError: somebody closed it, and it is no longer there.
        """
        if not self._is_ours():
            file = _apart(os.open(self.path, self._flags & ~_ONCE | os.O_NOFOLLOW))
            if _identity(file) != self._identity:
                os.close(file)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self.path))
            self._file = file
        return self._file

    def append(self, data: bytes) -> None:
        """Write all or nothing, so that a full disk leaves no half line in the middle.

        Raises:
            OSError: it cannot be written.
        """
        file = self.descriptor()
        written = os.write(file, data)
        if written < len(data):
            os.ftruncate(file, os.lseek(file, 0, os.SEEK_CUR) - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        """Close it, and nothing that has its number by now."""
        if self._is_ours():
            os.close(self._file)
        self._file = -1

    def _is_ours(self) -> bool:
        try:
            return self._file >= 0 and _identity(self._file) == self._identity
        except OSError:
            return False


def _identity(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def _apart(file: int) -> int:
    """The same file under a number that the program's own files are not given."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = (_NUMBERS if limit == resource.RLIM_INFINITY else min(limit, _NUMBERS)) * 3 // 4
    with contextlib.suppress(OSError):  # all of these are taken
        apart = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
        os.close(file)
        return apart
    return file
