"""Call stacks as ptdbg writes them: ``[path, "line", function, code]``, innermost first."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import FrameType

_HERE = str(Path(__file__).parents[1])


def frames_of(frame: FrameType | None) -> list[list[str]]:
    """The frames from a caller up to the program, without those of this package."""
    found = []
    while frame is not None:
        path, line = frame.f_code.co_filename, frame.f_lineno
        if not path.startswith(_HERE):
            code = linecache.getline(path, line).strip()
            found.append([path, str(line), frame.f_code.co_name, code])
        frame = frame.f_back
    return found
