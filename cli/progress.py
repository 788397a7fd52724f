"""How far a command is: one line that moves on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO, TypeVar

from ait_llm.cli.console import can_move, is_quiet
from ait_llm.cli.numbers import human_bytes
from ait_llm.compare import Progress
from ait_llm.language import translate

T = TypeVar("T")

REDRAW_SECONDS = 0.1
LINE_SECONDS = 10.0
_BAR = 16  # columns; text and share take the rest of 80


class ProgressLine:
    """Shows progress on stderr; a context manager that leaves a terminal clean.

    A terminal gets a bar that moves; a file or a log gets a plain line now and then; with
    ``--quiet`` there is nothing.

    Args:
        stream: where to; stderr if None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._moving = can_move(self._stream)
        self._silent = is_quiet()
        self._shown = time.monotonic()
        self._bar: Bar | None = None
        self._first: tuple[float, int] | None = None  # when, and bytes that were compared by then

    def __call__(self, progress: Progress) -> None:
        """Show a comparison's progress, unless something was shown a moment ago."""
        if self._first is None:
            self._first = time.monotonic(), progress.bytes
        if self._is_due():
            self._write(describe(progress, self._comparing(progress)), share_done(progress))

    def _comparing(self, progress: Progress) -> float:
        """Seconds that what is compared took at the pace since the first report of it.

        Reading and matching came before, and tell nothing of the pace; 0 as long as it is unknown.
        """
        assert self._first is not None
        since, before = self._first
        further = progress.bytes - before
        return (self._shown - since) * progress.bytes / further if further > 0 else 0.0

    def begin(self, text: str) -> None:
        """Show at once, on a terminal, what takes its time before anything can be counted."""
        if self._moving and not self._silent:
            self._write(text, None)

    def count(self, verb: str, done: int, noun: str, total: int | None = None) -> None:
        """Show ``checked 3 of 10 calls``, unless something was shown a moment ago."""
        if self._is_due():
            of_total = "" if total is None else f" of {total:,}"
            self._write(f"{verb} {done:,}{of_total} {noun}", done / total if total else None)

    def show(self, text: str) -> None:
        """Show a line, unless something was shown a moment ago."""
        if self._is_due():
            self._write(text, None)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self._silent or now - self._shown < (REDRAW_SECONDS if self._moving else LINE_SECONDS):
            return False
        self._shown = now
        return True

    def _write(self, text: str, share: float | None) -> None:
        text = translate(text)
        if not self._moving:
            self._stream.write(text + "\n")
            self._stream.flush()
            return
        if self._bar is None:
            self._bar = Bar(self._stream)
        self._bar.draw(text, share)

    def before(self, function: Callable[[T], None]) -> Callable[[T], None]:
        """The function, for which the moving line is removed: it has something to say."""

        def called(argument: T) -> None:
            self.clear()
            function(argument)

        return called

    def clear(self) -> None:
        """Remove the moving line."""
        if self._bar is not None:
            self._bar.remove()
            self._bar = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()


class Bar:
    """A line with a bar and a text, drawn with rich, which is loaded for it.

    It is drawn when it is told to, and by no thread of its own: commands start processes.

    Args:
        stream: a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Drawn
        from rich.table import Column

        text = TextColumn(
            "{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)
        )
        self._drawn = Drawn(
            BarColumn(bar_width=_BAR),
            TaskProgressColumn(),
            text,
            console=Console(file=stream, no_color=bool(os.environ.get("NO_COLOR")) or None),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
        )
        self._task = self._drawn.add_task("", total=None)
        self._drawn.start()

    def draw(self, text: str, share: float | None) -> None:
        """Show a text and the share that is done; None while nobody knows."""
        total = None if share is None else 1.0
        self._drawn.update(self._task, description=text, completed=share or 0.0, total=total)
        self._drawn.refresh()

    def remove(self) -> None:
        """Leave the line empty."""
        self._drawn.stop()


def share_done(progress: Progress) -> float:
    """The part of a comparison that is done, from 0 to 1."""
    # Bytes tell the time better than pairs, whose sizes differ by orders of magnitude.
    if progress.total_bytes:
        return progress.bytes / progress.total_bytes
    return progress.pairs / progress.total_pairs if progress.total_pairs else 1.0


def describe(progress: Progress, seconds: float) -> str:
    """``compared 1,200 of 2,000 tensors, 1.2 GiB of 2.0 GiB, 640.0 MiB/s, 12 s left``."""
    share = share_done(progress)
    texts = [
        f"compared {progress.pairs:,} of {progress.total_pairs:,} tensors",
        f"{human_bytes(progress.bytes)} of {human_bytes(progress.total_bytes)}",
    ]
    if seconds > 0 and 0 < share < 1 and not progress.resumed:
        texts.append(f"{human_bytes(int(progress.bytes / seconds))}/s")
        texts.append(f"{_duration(seconds * (1 - share) / share)} left")
    return ", ".join(texts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
