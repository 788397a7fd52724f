"""Unfinished files of a writer that was killed: they have names of their own and are no tensors."""

from __future__ import annotations

import os
from pathlib import Path

from ait_llm.probe.writers import is_alive

_PREFIX = ".ait-"  # then the process id of the writer, or of its host


def remove_leftovers(root: Path) -> list[Path]:
    """Remove the temporary files below a folder whose processes have ended.

    Writers give a file its name when it is whole, so what still has a temporary one is worth
    nothing. Readers pass it over; it only takes room.

    Args:
        root: a folder that no process of another machine writes into.

    Returns:
        What was removed. What cannot be removed stays.
    """
    removed = []
    for folder, _, names in os.walk(root):
        for name in names:
            number = name.removeprefix(_PREFIX).partition("-")[0]
            if not name.startswith(_PREFIX) or not number.isascii() or not number.isdigit():
                continue
            if len(number) < 10 and is_alive(int(number)):
                continue
            path = Path(folder, name)
            try:
                path.unlink()
            except OSError:
                continue
            removed.append(path)
    return removed
