"""Files that stand for others of the same size until these are fetched.

They begin with words that no format begins with, and nobody may read them, so that a program that
opens one without asking for its content fails instead of taking zeros for data.
"""

from __future__ import annotations

import os
from pathlib import Path

# The first byte is neither text nor the beginning of any tensor file; as a little-endian length it
# is larger than any header.
MARKER = b"\xff\xff\xff\xff\xff\xff\xff\xff ait-llm: not fetched yet, this is no data\n"
FILE_MODE = 0o640


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
