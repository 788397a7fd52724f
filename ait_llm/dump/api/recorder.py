"""What a capture needs of whoever records its calls: of our own format, or of ptdbg's."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any, Protocol, TypeVar

from ait_llm.dump.api.names import Api


class RecordedCall(Protocol):
    """A call between its begin and its end."""

    @property
    def name(self) -> str:
        """Of its record; it ends with ``forward``."""

    @property
    def parent(self) -> str | None:
        """The record of the module that it runs in."""


CallT = TypeVar("CallT", bound=RecordedCall)


class Recorder(Protocol[CallT]):
    """Gets every call of a window, one at a time in each thread.

    A method that raises does so within the program's own call.
    """

    @property
    def active(self) -> bool:
        """False when nothing is recorded any more, not even gradients of earlier calls."""

    @property
    def backward(self) -> bool:
        """Whether backward calls are recorded."""

    def wants(self, found: Api) -> bool:
        """Whether calls of a function are looked at, and counted, at all."""

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> CallT | None:
        """Begin to record a call; None if it is not wanted.

        Args:
            found: the function.
            args: positional arguments.
            kwargs: keyword arguments.
            frame: of the caller.
            modules: records of the modules that are running, outermost first.
        """

    def left_out(self, found: Api) -> CallT | None:
        """The call that :meth:`begin` has just refused, if its backward call may be wanted."""

    def end(self, call: CallT, output: Any, found: Api | None = None) -> None:
        """Record what a call returned."""

    def raised(self, call: CallT, error: BaseException) -> None:
        """Record that a call raised."""

    def drop(self, call: CallT) -> None:
        """Forget a call that turned out to be none: an operator that left it to the other side."""

    def gradients(self, name: str, parent: str | None, arriving: Any, leaving: Any) -> None:
        """Record a backward call.

        Args:
            name: of its record.
            parent: the record of the module whose backward pass it belongs to.
            arriving: gradients with respect to what the call returned.
            leaving: gradients with respect to what the call got.
        """
