"""Files that take their place when they are whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_MODE = 0o640
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = 100


def temporary_beside(path: Path) -> tuple[int, Path]:
    """Make an empty file in the folder of ``path``, to be renamed to it.

    Its mode is 0640 less what the umask takes away.

    Returns:
        The descriptor, which the caller closes, and the file.

    Raises:
        OSError: it cannot be made.
    """
    for attempt in range(_ATTEMPTS):
        name = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}")
        try:
            return os.open(name, _FLAGS, _MODE), name
        except FileExistsError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
