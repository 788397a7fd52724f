"""Whether a running program captures now: a file says so, with the word ``on`` or ``off``.

It is one of the launcher's channel, or that of ``--control``. ``ait llm attach`` or somebody else
writes it, the processes of the program look at it, a few times a second at most: an engine before a
pass, other programs when they call their model, and while nothing is captured by a thread that
waits. Needs the standard library alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

FILE = "switch"
_SECONDS = 0.2
"""Between two looks at the file."""
_WORDS = {"on": True, "off": False}
_LONGEST = 64


def write_switch(file: Path, *, on: bool) -> None:
    """Tell all processes of a run to capture, or not to.

    Raises:
        OSError: the folder is gone, or cannot be written.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text("on\n" if on else "off\n", "utf-8")
    part.replace(file)


def read_switch(file: Path) -> bool | None:
    """What was told last; None if nothing was."""
    try:
        with file.open(encoding="utf-8") as text:
            return _WORDS.get(text.read(_LONGEST).strip().lower())
    except (OSError, ValueError):
        return None


class Switch:
    """Follows the file.

    Args:
        channel: the launcher's folder; None for a program that nobody switches.
        control: the file that the user named; None for that of the channel.
        on: what holds until somebody says otherwise.
    """

    def __init__(self, channel: str | None, control: Path | None = None, *, on: bool) -> None:
        named = None if control is None else str(control)
        self._path = named or (f"{channel}/{FILE}" if channel else None)
        self._on = on
        self._looked = 0.0
        self._stamp: tuple[int, int, int] | None = None
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
        stamp = found.st_mtime_ns, found.st_ino, found.st_size
        if stamp != self._stamp:
            self._stamp = stamp
            on = read_switch(Path(path))
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
