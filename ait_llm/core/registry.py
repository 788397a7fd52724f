"""One registry class for everything that is looked up by a name the user types."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from ait_llm.errors import UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to objects; a duplicate name fails at import, an unknown one suggests the nearest.

    Args:
        kind: what the entries are, in the singular, for messages ("metric").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorate an object to register it under one name and any aliases."""

        def add(entry: T) -> T:
            for name in names:
                if name in self._entries:
                    raise ValueError(f"{self.kind} {name!r} is registered twice")
                self._entries[name] = entry
            return entry

        return add

    def get(self, name: str) -> T:
        """Return the entry called ``name``.

        Raises:
            UnknownNameError: no such entry; the message names the nearest one, or all of them.
        """
        try:
            return self._entries[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._entries, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self.names())}"
            raise UnknownNameError(f"unknown {self.kind} {name!r}; {hint}") from None

    def names(self) -> list[str]:
        """All names in alphabetical order."""
        return sorted(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._entries)
