"""Several functions that take turns, so that all of them pass a place before any goes on.

Groups of requests run through the same model; they meet in front of each of its large parts, whose
weights are then loaded once for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class _StoppedError(BaseException):
    """Ends a function because another one failed."""


class Turns:
    """Runs functions one at a time, each up to where it meets the others.

    Args:
        between: called when all that still run have met or ended, with the places where they wait.
    """

    def __init__(self, between: Callable[[set[str]], None]) -> None:
        self._between = between
        self._turns: list[threading.Semaphore] = []
        self._places: list[str | None] = []
        self._error: BaseException | None = None
        self._me = threading.local()

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run all functions to their end, the first one first.

        Raises:
            BaseException: what the first function that failed raised; the others are ended.
        """
        if len(functions) == 1:  # on this thread, where an interrupt ends it
            self._between({""})
            functions[0]()
            return
        self._turns = [threading.Semaphore(0) for _ in functions]
        self._places = ["" for _ in functions]
        threads = [
            threading.Thread(target=self._body, args=(number, function), daemon=True)
            for number, function in enumerate(functions)
        ]
        for thread in threads:
            thread.start()
        self._between({""})
        self._turns[0].release()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def meet(self, place: str) -> None:
        """Wait until all others have come as far; called by the functions."""
        if not self._turns:
            self._between({place})
            return
        number = self._me.number
        self._places[number] = place
        self._pass_on(number)
        self._turns[number].acquire()
        if self._error is not None:
            raise _StoppedError

    def _body(self, number: int, function: Callable[[], None]) -> None:
        self._me.number = number
        self._turns[number].acquire()
        try:
            if self._error is None:
                function()
        except _StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by run
            self._error = self._error or error
        self._places[number] = None
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        """Let the next one run that has not ended; between two rounds all that there is to do."""
        later = [each for each in range(number + 1, len(self._places)) if self._is_there(each)]
        if not later:
            if self._error is None:
                try:
                    self._between({place for place in self._places if place})
                except BaseException as error:  # noqa: BLE001 - raised again by run
                    self._error = error
            later = [each for each in range(len(self._places)) if self._is_there(each)]
        if later:
            self._turns[later[0]].release()

    def _is_there(self, number: int) -> bool:
        return self._places[number] is not None
