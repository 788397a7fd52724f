"""Run something in a process of its own, with a limit of memory: no case ends the run."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

GIB = 1 << 30
MEMORY = 8 * GIB
_NO_MEMORY = "can't allocate memory"

Answer = TypeVar("Answer")


class TooMuchError(Exception):
    """It takes more memory than it may, or its process ended."""


def apart(function: Callable[[], Answer], memory: int = MEMORY) -> Answer:
    """What a function returns or raises in a copy of this process.

    Raises:
        TooMuchError: it takes more memory, or its process ended without an answer.
    """
    context = multiprocessing.get_context("fork")  # the function need not be pickled
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, there, memory))
    process.start()
    there.close()
    try:
        answer, error = here.recv()
    except EOFError:
        process.join()
        raise TooMuchError(f"its process ended with {process.exitcode}") from None
    finally:
        here.close()
    process.join()
    if error is not None:
        raise error
    found: Answer = answer
    return found


def _answer(function: Callable[[], object], there: Connection, memory: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, most))
    try:
        there.send((function(), None))
    except Exception as error:  # noqa: BLE001 it is raised in the other process
        enough = TooMuchError(f"it takes more than {memory / GIB:g} GiB")
        there.send((None, enough if _lacks_memory(error) else error))


def _lacks_memory(error: BaseException | None) -> bool:
    if error is None:
        return False
    own = isinstance(error, MemoryError) or _NO_MEMORY in str(error)
    return own or _lacks_memory(error.__cause__)
