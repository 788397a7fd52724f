"""The folder of copies: private, bounded, and gone when the process ends."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ait_llm.errors import UsageError
from ait_llm.storage.remote import StorageError

LIMIT_VARIABLE = "AIT_CACHE_BYTES"
_DEFAULT_LIMIT = 10 << 30
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PREFIX = "ait-storage-"
_LOCK_NAME = ".lock"
_RESERVE = 64 << 20  # bytes of the disk that are left to others


class Evictable(Protocol):
    """A copy that can be dropped and fetched again."""

    @property
    def size(self) -> int: ...

    def drop(self) -> bool:
        """Put a placeholder in its place; False if somebody is opening it just now."""
        ...


class Cache:
    """Copies of this process.

    Attributes:
        folder: where they lie; mode 0700.
        limit: bytes of fetched files that are kept, as far as single files permit.
    """

    def __init__(self) -> None:
        self.limit = cache_limit()
        parent = Path(tempfile.gettempdir()).resolve()
        _remove_abandoned(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getuid()}-", dir=parent))
        self._pid = os.getpid()
        # held as long as the process lives, however it ends
        self._held = os.open(self.folder / _LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Evictable, None] = OrderedDict()
        self._used = 0
        self._coming = 0
        atexit.register(self.remove)

    @property
    def used(self) -> int:
        """Bytes of files that are here or on their way."""
        return self._used

    @contextmanager
    def room_for(self, size: int, url: str) -> Iterator[None]:
        """Make room for a file that is fetched in this block; give it back if that fails.

        Raises:
            StorageError: the disk has not as much space.
        """
        with self._lock:
            self._shrink(self.limit - size)
            free = shutil.disk_usage(self.folder).free - self._coming - _RESERVE
            if size > free:
                raise StorageError(
                    url,
                    f"its {size:,} bytes do not fit on the disk of {self.folder.parent}, which has "
                    f"{max(0, free):,} free",
                    "Set TMPDIR to a folder on a larger disk",
                )
            self._used += size
            self._coming += size
        try:
            yield
        except BaseException:
            with self._lock:
                self._used -= size
            raise
        finally:
            with self._lock:
                self._coming -= size

    def keep(self, copy: Evictable) -> None:
        """A file is here and may be dropped when others need its room."""
        with self._lock:
            self._kept[copy] = None

    def touch(self, copy: Evictable) -> None:
        """A file was used."""
        with self._lock:
            if copy in self._kept:
                self._kept.move_to_end(copy)

    def pin(self, copy: Evictable) -> None:
        """A file stays as long as the process; it counts, and is never dropped."""
        with self._lock:
            self._kept.pop(copy, None)

    def let_go(self, copy: Evictable) -> None:
        """A file is deleted by its owner."""
        with self._lock:
            self._kept.pop(copy, None)
            self._used -= copy.size

    def remove(self) -> None:
        """Delete everything; only in the process that made it."""
        if os.getpid() == self._pid:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.folder.exists():  # a file arrived meanwhile
                shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.close(self._held)
            atexit.unregister(self.remove)

    def after_fork(self) -> None:
        """A child shares the files, not the threads that held the lock."""
        self._lock = threading.Lock()

    def _shrink(self, limit: int) -> None:
        """Drop what was used least recently until no more than ``limit`` bytes are left."""
        busy = []
        while self._used > max(0, limit) and self._kept:
            oldest, _ = self._kept.popitem(last=False)
            if oldest.drop():
                self._used -= oldest.size
            else:
                busy.append(oldest)
        for copy in busy:
            self._kept[copy] = None


def cache_limit() -> int:
    """Bytes that copies may take, from ``AIT_CACHE_BYTES``: ``512M``, ``20GiB``.

    Raises:
        UsageError: it is set to something else.
    """
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return _DEFAULT_LIMIT
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.lower())
    if match is None:
        raise UsageError(f"{LIMIT_VARIABLE}={text!r} is not a size; write it like 512M or 20G")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def _remove_abandoned(parent: Path) -> None:
    """Delete folders of processes of this user that were killed before they could."""
    for folder in parent.glob(f"{_PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while it lives
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
