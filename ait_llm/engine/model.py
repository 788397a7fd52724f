"""What an engine promises to those who have much to compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

Unit = TypeVar("Unit")
Result = TypeVar("Result")


_attempt: ContextVar[int] = ContextVar("attempt", default=1)


def attempt() -> int:
    """Which attempt at its unit the running function is; more than 1 after a worker died."""
    return _attempt.get()


def set_attempt(number: int) -> None:
    """For engines: what :func:`attempt` says from now on."""
    _attempt.set(number)


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of a unit that could not be computed anywhere.

    Attributes:
        reason: why, as a clause: which node was lost, and that no other one sees the data.
    """

    reason: str


class Engine(Protocol):
    """Computes independent units of work, several at a time.

    Attributes:
        slots: how many units are computed at the same time.
        remote: True if units are computed by other processes. Then function and units must be
            picklable: paths, numbers and options, never tensors.
    """

    @property
    def slots(self) -> int: ...
    @property
    def remote(self) -> bool: ...

    def look_for(self, roots: Sequence[str]) -> None:
        """See that what is given can be listed here and read where units are computed.

        Raises:
            FormatError: a remote engine has no node that sees a root.
            UsageError: only other nodes than this see it, or nobody can read all roots.
        """
        ...

    def prepare(self, function: Callable[[None], object], roots: Sequence[str] = ()) -> None:
        """Let each worker call a function while the units are still being made.

        For what it would do first anyway, such as opening a dump. Nobody waits for it, and what
        goes wrong shows when the units are computed.

        Args:
            function: called with None; importable by other processes where the engine is remote.
            roots: as in :meth:`run`.

        Raises:
            UsageError: nobody can read all roots.
        """
        ...

    def run(
        self,
        function: Callable[[Unit], Result],
        units: Sequence[Unit],
        *,
        roots: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> Generator[tuple[int, Result | Lost], None, None]:
        """Compute all units.

        Args:
            function: computes one; importable by other processes where the engine is remote.
            units: the work. They are started in this order; a list is emptied while it is worked
                off, so that their memory is given back.
            roots: paths and URLs that a unit must be able to read where it is computed.
            stop: when set, no further unit is started and the generator ends soon.

        Yields:
            The place of each unit and what the function returned for it, in any order. Units that
            were not reached before a stop are missing.

        Raises:
            UsageError: nobody can read all roots.
            Exception: what the function raises, unchanged.
        """
        ...
