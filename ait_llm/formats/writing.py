"""New files that appear when they are complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ait_llm.core.new_files import temporary_beside
from ait_llm.errors import FormatError


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when the block ends without an exception.

    Raises:
        FormatError: it cannot be written.
    """
    temporary: Path | None = None
    try:
        try:
            handle, temporary = temporary_beside(path)
            with os.fdopen(handle, "wb") as file:
                yield file
            temporary.replace(path)
        except OSError as error:
            raise FormatError(path, f"cannot be written: {error.strerror or error}") from None
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise
