"""Sequences and mappings that are read when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Deferred(Sequence[T]):
    """A sequence that is listed when it is looked at; a subclass says how."""

    __slots__ = ()

    def listed(self) -> Sequence[T]:
        """All items."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.listed()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.listed())

    def __len__(self) -> int:
        return len(self.listed())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return tuple(self.listed()) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.listed()))


class Lazy(Deferred[T]):
    """A sequence that a function lists.

    Args:
        make: lists it.
        keep: False where the maker remembers it himself, for as long as he can afford to.
    """

    __slots__ = ("_items", "_keep", "_make")

    def __init__(self, make: Callable[[], Sequence[T]], *, keep: bool = True) -> None:
        self._make = make
        self._keep = keep
        self._items: Sequence[T] | None = None

    def listed(self) -> Sequence[T]:
        """All items, listed once if they are kept."""
        items = self._items
        if items is None:
            items = self._make()
            if self._keep:
                self._items = items
        return items


class DeferredMapping(Mapping[str, Any]):
    """A mapping that is read when it is looked at; a subclass says how."""

    __slots__ = ()

    def read(self) -> Mapping[str, Any]:
        """All of it."""
        raise NotImplementedError

    def __getitem__(self, key: str) -> Any:
        return self.read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.read())!r})"


class LazyMapping(DeferredMapping):
    """A mapping that a function reads, each time: the maker remembers what he can afford to.

    Args:
        make: reads it.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    def read(self) -> Mapping[str, Any]:
        """All of it."""
        return self._make()


class _Nothing(DeferredMapping):
    """The empty mapping that all operations without parameters share."""

    __slots__ = ()

    def read(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    def __hash__(self) -> int:
        return 0  # a dataclass takes no default that cannot be hashed


NOTHING: Mapping[str, Any] = _Nothing()
