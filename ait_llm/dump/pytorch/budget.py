"""How many bytes a run may write, counted over all of its processes.

Each process keeps what it wrote in a file of eight bytes beside those of the others, so that none
waits for another. What one of them cannot see yet of the others is what they write meanwhile.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from ait_llm.dump.held_file import HeldFile

_NUMBER = struct.Struct("<Q")
_PREFIX = "written_"
_HEADER = 1300
"""What a file of one tensor has beside the elements."""


class Budget:
    """The share of a budget that this process uses.

    Args:
        limit: bytes that all processes together may write.
        folder: where they count; None counts this process alone.
    """

    def __init__(self, limit: int, folder: str | None) -> None:
        self.limit = limit
        self._folder = folder
        self._own = 0
        self._others = 0
        self._before = 0
        self._file: HeldFile | None = None
        self.is_spent = False

    @property
    def written(self) -> int:
        """Bytes that were written by all, as far as it is known here."""
        return self._own + self._others

    def take(self, size: int) -> bool:
        """Count a file with so many bytes of elements; False if there is no room for it."""
        size += _HEADER
        if self.is_spent or self.written + size > self.limit:
            self.is_spent = True
            return False
        self._own += size
        return True

    def look(self) -> bool:
        """Tell the others, and count theirs; True if there is room for as much as since the last.

        A step that is begun should fit.
        """
        last, self._before = self._own - self._before, self._own
        if self._folder is not None:
            with suppress(OSError):
                self._tell(self._folder)
            self._others = written_in(Path(self._folder), but=os.getpid())
        if self.written + last >= self.limit:
            self.is_spent = True
        return not self.is_spent

    def _tell(self, folder: str) -> None:
        if self._file is None:
            name = f"{folder}/{_PREFIX}{os.getpid()}"
            self._file = HeldFile(name, os.O_WRONLY | os.O_CREAT)
        os.pwrite(self._file.descriptor(), _NUMBER.pack(self._own), 0)

    def continue_in_child(self) -> None:
        """After a fork: the parent counts what it wrote."""
        if self._file is not None:
            self._file.close()
        self._own, self._before, self._file = 0, 0, None


def written_in(folder: Path, *, but: int = -1) -> int:
    """Bytes that the processes of a run say they wrote, without one of them."""
    total = 0
    for path in folder.glob(f"{_PREFIX}*"):
        if path.name != f"{_PREFIX}{but}":
            with suppress(OSError, struct.error):
                total += _NUMBER.unpack(path.read_bytes())[0]
    return total
