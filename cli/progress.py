"""How far a comparison is: one line that moves on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TextIO

from ait_llm.cli.numbers import human_bytes
from ait_llm.compare import Progress

REDRAW_SECONDS = 0.1
LINE_SECONDS = 10.0
_BAR = 20  # the line fits into 80 columns


class ProgressLine:
    """Shows progress on stderr; a context manager that leaves a terminal clean.

    Args:
        stream: where to; stderr if None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._moving = self._stream.isatty()
        self._started = self._shown = time.monotonic()
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Show a comparison's progress, unless something was shown a moment ago."""
        if self._is_due():
            seconds = self._shown - self._started
            self._write(describe(progress, seconds, bar=self._moving))

    def show(self, text: str) -> None:
        """Show a line, unless something was shown a moment ago."""
        if self._is_due():
            self._write(text)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._shown < (REDRAW_SECONDS if self._moving else LINE_SECONDS):
            return False
        self._shown = now
        return True

    def _write(self, text: str) -> None:
        if self._moving:
            columns = shutil.get_terminal_size().columns
            text = text[: columns - 1]
            # Blanks instead of an escape sequence: any terminal understands them.
            self._stream.write(f"\r{text:<{self._width}}")
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the moving line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()


def describe(progress: Progress, seconds: float, *, bar: bool) -> str:
    """``compared 1,200 of 2,000 tensors, 1.2 GiB of 2.0 GiB, 640.0 MiB/s, 12 s left``."""
    # Bytes tell the time better than pairs, whose sizes differ by orders of magnitude.
    share = (
        progress.bytes / progress.total_bytes
        if progress.total_bytes
        else progress.pairs / progress.total_pairs
        if progress.total_pairs
        else 1.0
    )
    texts = [f"{progress.pairs:,} of {progress.total_pairs:,} tensors"]
    if not bar:
        texts.append(f"{human_bytes(progress.bytes)} of {human_bytes(progress.total_bytes)}")
    if seconds > 0 and 0 < share < 1 and not progress.resumed:
        texts.append(f"{human_bytes(int(progress.bytes / seconds))}/s")
        texts.append(f"{_duration(seconds * (1 - share) / share)} left")
    text = ", ".join(texts)
    if not bar:
        return f"compared {text}"
    full = round(share * _BAR)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}  {text}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
