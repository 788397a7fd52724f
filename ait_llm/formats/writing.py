"""New files that appear when they are complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ait_llm.errors import FormatError

_MODE = 0o640


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when the block ends without an exception.

    Raises:
        FormatError: it cannot be written.
    """
    temporary = ""
    try:
        try:
            handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
            os.fchmod(handle, _MODE)
            with os.fdopen(handle, "wb") as file:
                yield file
            Path(temporary).replace(path)
        except OSError as error:
            raise FormatError(path, f"cannot be written: {error.strerror or error}") from None
    except BaseException:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise
