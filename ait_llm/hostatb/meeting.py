"""Where processes that one program has started, one for each rank, find each other.

They share their parent, and it numbers them in the order of their start. So the parent and the
number that rank 0 has name the meeting; the file of it lies in a folder that is the user's alone.
"""

from __future__ import annotations

import multiprocessing
import os
import stat
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

SECONDS = 120.0  # for all ranks to come; each may have to import torch first
_START = 19  # of the fields behind the name in /proc/PID/stat: when the process started


def meet(rank: int, size: int) -> Any:  # torch has no type
    """What the ranks exchange addresses in, once all of them are there.

    None in a process that was not started so, or if the others do not come.
    """
    own = multiprocessing.current_process()
    folder = _folder()
    if multiprocessing.parent_process() is None or not own._identity or folder is None:
        return None
    parent = os.getppid()
    first = own._identity[-1] - rank
    file = folder / f"{parent}-{_started(parent)}-{first}"
    store = dist.FileStore(str(file), size)  # type: ignore[attr-defined]  # it is there
    store.set(f"rank{rank}", "here")
    try:
        store.wait([f"rank{other}" for other in range(size)], timedelta(seconds=SECONDS))
    except RuntimeError:
        file.unlink(missing_ok=True)
        return None
    return store


def _folder() -> Path | None:
    """The folder of meetings, unless it is somebody else's."""
    path = Path(tempfile.gettempdir()) / f"hostatb-{os.getuid()}"
    path.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = path.lstat()
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
    return path if private and found.st_uid == os.getuid() else None


def _started(pid: int) -> str:
    """Tells a process from an earlier one of the same number."""
    words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return words[_START]
