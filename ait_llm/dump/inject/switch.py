"""Whether a running program captures now: a file of the launcher's channel says so.

``ait llm attach`` writes the file, the processes of the program look at it, a few times a second at
most: an engine before a pass, other programs when they call their model, and while nothing is
captured by a thread that waits. Needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

FILE = "switch.json"
_SECONDS = 0.2
"""Between two looks at the file."""


def write_switch(channel: Path, *, on: bool) -> None:
    """Tell all processes of a run to capture, or not to.

    Raises:
        OSError: the folder is gone, or cannot be written.
    """
    part = channel / f".{FILE}.{os.getpid()}"
    part.write_text(json.dumps({"on": on}), "utf-8")
    part.replace(channel / FILE)


def read_switch(channel: Path) -> bool | None:
    """What was told last; None if nothing was."""
    try:
        on = json.loads((channel / FILE).read_text("utf-8"))["on"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return on if isinstance(on, bool) else None


class Switch:
    """Follows the file.

    Args:
        channel: the launcher's folder; None for a program that nobody switches.
        on: what holds until somebody says otherwise.
    """

    def __init__(self, channel: str | None, *, on: bool) -> None:
        self._path = None if not channel else f"{channel}/{FILE}"
        self._on = on
        self._looked = 0.0
        self._stamp: tuple[int, int] | None = None
        self._waiting: Callable[[], None] | None = None
        os.register_at_fork(after_in_child=self._continue)

    def is_on(self) -> bool:
        """What holds now; costs a look at the clock, and a few times a second one at the file."""
        if self._path is None:
            return self._on
        now = time.monotonic()
        if now - self._looked >= _SECONDS:
            self._looked = now
            self._look(self._path)
        return self._on

    def when_on(self, callback: Callable[[], None]) -> None:
        """Call back from a thread, once, when capturing is asked for."""
        if self._path is not None:
            self._waiting = callback
            threading.Thread(target=self._wait, name="ait-switch", daemon=True).start()

    def _look(self, path: str) -> None:
        try:
            found = os.stat(path)  # noqa: PTH116 - a Path costs as much again
        except OSError:
            return
        stamp = found.st_mtime_ns, found.st_ino
        if stamp != self._stamp:
            self._stamp = stamp
            on = read_switch(Path(path).parent)
            self._on = self._on if on is None else on

    def _wait(self) -> None:
        while not self.is_on():
            time.sleep(_SECONDS)
        callback, self._waiting = self._waiting, None
        if callback is not None:
            callback()

    def _continue(self) -> None:
        """After a fork: the thread is not there."""
        if self._waiting is not None:
            self.when_on(self._waiting)
