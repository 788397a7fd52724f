"""Report files: written under a temporary name, renamed when complete, readable by the group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ait_llm.core.new_files import temporary_beside
from ait_llm.errors import UsageError

FILE_MODE = 0o640  # less what the umask takes away
FOLDER_MODE = 0o750


def make_folder(path: Path) -> None:
    """Create a folder for reports, and the folders above it.

    Raises:
        UsageError: it cannot be created.
    """
    try:
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: {_reason(error)}; choose a folder with --output") from error


@contextlib.contextmanager
def replacing(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """A new file that takes the place of ``path`` when the block ends without an exception.

    Text is UTF-8 with the line ends that are written; what UTF-8 cannot hold (half characters in
    file names) is written as an escape.

    Raises:
        UsageError: it cannot be written.
    """
    temporary: Path | None = None
    try:
        try:
            handle, temporary = temporary_beside(path)
            if binary:
                file: IO[Any] = os.fdopen(handle, "wb")
            else:
                file = os.fdopen(
                    handle, "w", encoding="utf-8", errors="backslashreplace", newline=""
                )
            with file:
                yield file
            temporary.replace(path)
        except OSError as error:
            raise UsageError(
                f"{path}: the report cannot be written ({_reason(error)}); "
                "choose another folder with --output"
            ) from error
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
