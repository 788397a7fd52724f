"""Which passes of an engine are captured: by request, by tokens of a request, by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ait_llm.core import StepRange


class Stretch(Protocol):
    """Consecutive tokens of one request."""

    @property
    def request(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def count(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RequestSelection:
    """A filter on passes; empty fields do not restrict.

    Attributes:
        tokens: tokens of a request: 0 is all of its prompt, k the k-th token that it chose.
        requests: ids, or numbers in the order in which requests came.
        steps: passes of the engine, from 0; None for all.
    """

    tokens: StepRange
    requests: tuple[str, ...] = ()
    steps: StepRange | None = None

    def covers(self, step: int, stretches: Iterable[tuple[Stretch, int, int]]) -> bool:
        """True if a pass computes something that was asked for.

        Args:
            step: number of the pass.
            stretches: what it computes; of each also the number of the request, and how many tokens
                its prompt has.
        """
        if self.steps is not None and step not in self.steps:
            return False
        return any(
            self._is_wanted(stretch.request, number) and self._has_token(stretch, prompt)
            for stretch, number, prompt in stretches
        )

    def _is_wanted(self, request: str, number: int) -> bool:
        return not self.requests or any(
            is_request(request, number, wanted) for wanted in self.requests
        )

    def _has_token(self, stretch: Stretch, prompt: int) -> bool:
        first = token_number(stretch.first, prompt)
        last = token_number(stretch.first + stretch.count - 1, prompt)
        return any(first <= end and begin <= last for begin, end in self.tokens.intervals)


def is_request(request: str, number: int, wanted: str) -> bool:
    """True if ``wanted`` names the request: its id, the start of it, or its number.

    Engines add something behind the id that a client gave: ``cmpl-7f-0`` to ``cmpl-7f``.
    """
    return wanted in (request, str(number)) or (
        request.startswith(f"{wanted}-") and not wanted.isdecimal()
    )


def token_number(position: int, prompt: int) -> int:
    """What ``-er`` calls the token at a position: 0 in the prompt, then 1, 2, ..."""
    return max(0, position - prompt + 1)
