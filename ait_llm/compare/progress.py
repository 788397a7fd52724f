"""How far a comparison is, and how it is asked to stop early."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Progress:
    """What is done so far.

    Attributes:
        pairs: pairs that are finished, whatever became of them.
        total_pairs: all pairs.
        bytes: bytes of both sides that belong to finished pairs, by their recorded shapes.
        total_bytes: the same of all pairs.
        resumed: pairs among the finished ones that an earlier report answered.
    """

    pairs: int
    total_pairs: int
    bytes: int
    total_bytes: int
    resumed: int = 0


ProgressCallback = Callable[[Progress], None]


class Stopped(Exception):
    """A unit of work gave up because the comparison was asked to stop."""


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into an event; a second one acts as it did before.

    For command lines: pass the event to ``compare(..., stop=event)``. Must be used in the main
    thread; elsewhere the event is never set.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in _SIGNALS:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
