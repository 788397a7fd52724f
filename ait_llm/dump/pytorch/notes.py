"""What is noted about a run before its capture has a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Tell = Callable[[str, Mapping[str, Any]], None]


class Notes:
    """Keeps lines until there is a ledger that takes them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._tell: Tell | None = None
        self._ended = False

    def attach(self, tell: Tell) -> None:
        """Hand over what was noted so far, and from now on: the kind of a line and its facts."""
        self._tell, self._ended = tell, False
        for kind, facts in self._waiting:
            tell(kind, facts)
        self._waiting.clear()

    def tell(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Note a line."""
        if self._ended:
            return
        if self._tell is None:
            self._waiting.append((kind, facts))
        else:
            self._tell(kind, facts)

    def end(self) -> None:
        """From now on nothing is noted: the ledger is closed."""
        self._ended = True
