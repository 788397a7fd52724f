"""Units in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from ait_llm.engine.model import Lost, Result, Unit

_POLL_SECONDS = 0.2  # how long a signal waits at most where threads swallow it


class LocalEngine:
    """A pool of threads; a single one is the caller's own.

    Args:
        jobs: threads.
        name: what their names begin with.
    """

    remote = False

    def __init__(self, jobs: int, name: str = "ait-engine") -> None:
        self.slots = max(1, jobs)
        self._name = name

    def look_for(self, roots: Sequence[str]) -> None:
        """Nothing: who opens a root says best what is wrong with it."""

    def prepare(self, function: Callable[[None], object], roots: Sequence[str] = ()) -> None:
        """Nothing: threads see what their process has opened."""

    def run(
        self,
        function: Callable[[Unit], Result],
        units: Sequence[Unit],
        *,
        roots: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> Generator[tuple[int, Result | Lost], None, None]:
        """See :class:`~ait_llm.engine.model.Engine`; after a stop what is under way is finished.

        An exception, of the function or thrown into the generator, sets ``stop``, so that a
        function that looks at it ends early.
        """
        stop = stop if stop is not None else threading.Event()
        waiting = _taken(units)
        if self.slots == 1 or len(units) <= 1:
            for index, unit in waiting:
                if stop.is_set():
                    return
                yield index, function(unit)
            return
        with ThreadPoolExecutor(self.slots, thread_name_prefix=self._name) as pool:
            running: dict[Future[Result], int] = {}
            more = True
            try:
                while running or more:
                    while more and len(running) < 2 * self.slots and not stop.is_set():
                        taken = next(waiting, None)
                        more = taken is not None
                        if taken is not None:
                            running[pool.submit(function, taken[1])] = taken[0]
                        del taken
                    if stop.is_set():
                        more = False
                        for future in list(running):
                            if future.cancel():
                                del running[future]
                    done, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                    for future in sorted(done, key=running.__getitem__):
                        yield running.pop(future), future.result()
            except BaseException:
                stop.set()
                for future in running:
                    future.cancel()
                raise


def _taken(units: Sequence[Unit]) -> Iterator[tuple[int, Unit]]:
    """Each unit with its place; a list lets go of it."""
    if not isinstance(units, list):
        yield from enumerate(units)
        return
    units.reverse()
    index = 0
    while units:
        yield index, units.pop()
        index += 1
