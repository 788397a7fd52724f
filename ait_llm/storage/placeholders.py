"""Files that stand for others of the same size until these are fetched.

They begin with words that no format begins with, and nobody may read them, so that a program that
opens one without asking for its content fails instead of taking zeros for data.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

# The first byte is neither text nor the beginning of any tensor file; as a little-endian length it
# is larger than any header.
MARKER = b"\xff\xff\xff\xff\xff\xff\xff\xff ait-llm: not fetched yet, this is no data\n"
FILE_MODE = 0o640
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h


def make_placeholder(path: Path | str, size: int, changed: int) -> None:
    """Create a file of ``size`` bytes, at least as many as the marker, that takes no space.

    Args:
        path: the file; it must not exist.
        size: in bytes.
        changed: time of the last change in ns.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0)
    try:
        os.write(descriptor, MARKER[:size])
        os.ftruncate(descriptor, size)
        os.utime(descriptor, ns=(changed, changed))
    finally:
        os.close(descriptor)


def take_place(new: str, path: str) -> None:
    """Let one file take the place of another in one step.

    Both change names, and the other one is deleted. A plain rename over it would make ext4 write
    the new file to disk at once (``auto_da_alloc``), which tens of thousands of copies that nobody
    needs after this process pay with minutes.

    Raises:
        OSError: it cannot be done.
    """
    rename = _renameat2()
    if rename is not None:
        source, target = os.fsencode(new), os.fsencode(path)
        if rename(_AT_FDCWD, source, _AT_FDCWD, target, _RENAME_EXCHANGE) == 0:
            os.unlink(new)  # noqa: PTH108
            return
    os.replace(new, path)  # noqa: PTH105  a file system that cannot exchange


@functools.cache
def _renameat2() -> Any:  # a ctypes function
    return getattr(ctypes.CDLL(None), "renameat2", None)
