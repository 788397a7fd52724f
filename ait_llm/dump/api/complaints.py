"""What could not be recorded, in ``dump_error_info.log``, each kind once."""

from __future__ import annotations

import datetime
import os
import traceback
from pathlib import Path


class Complaints:
    """Writes the log of one folder; without a complaint there is none.

    Args:
        folder: of the recording.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()

    def add(self, text: str) -> None:
        """Note it, with the call stack of the program."""
        kind = text.partition(": ")[2] or text
        if kind in self._known:
            return
        first = not self._known
        self._known.add(kind)
        now = datetime.datetime.now(datetime.timezone.utc).astimezone()
        stack = "".join(traceback.format_stack(limit=12)[:-2])
        line = f"[{now:%Y-%m-%d %H:%M:%S %z}] {text}\nCall stack (most recent call last):\n{stack}"
        path = self._folder / "dump_error_info.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_TRUNC if first else os.O_APPEND
        try:
            with os.fdopen(os.open(path, flags, 0o640), "w", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            return  # nothing can be written here, and nothing may disturb the program


def reason_of(error: BaseException) -> str:
    """The first line of what an error says."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
