"""Where the calls of an API dump were made: construction and call stacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ait_llm.core import OpId
from ait_llm.dumps.api_json import read_members
from ait_llm.dumps.api_values import MAX_DEPTH
from ait_llm.errors import FormatError


def read_construct(path: Path) -> dict[str, str | None]:
    """The call in which each call was made, by name; empty if there is no file.

    Megatron captures add the number of the micro step to each parent, which is left out.

    Raises:
        FormatError: the file is damaged.
    """
    if not path.exists():
        return {}
    found: dict[str, str | None] = {}
    for member in read_members(path):
        parent: Any = member.value
        if isinstance(parent, list) and parent:
            parent = parent[0]
        if parent is None or isinstance(parent, str):
            found[member.key] = parent
    return found


def read_stacks(path: Path) -> dict[str, tuple[str, ...]]:
    """Call stacks by the name of the call, innermost frame first; empty if there is no file.

    Newer captures list the calls that share a stack, older ones repeat it for each call.

    Raises:
        FormatError: the file is damaged.
    """
    if not path.exists():
        return {}
    found: dict[str, tuple[str, ...]] = {}
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # most calls share a few stacks
    is_shared: bool | None = None
    for member in read_members(path):
        value = member.value
        if is_shared is None:  # an object begins with "0" in the newer form only
            is_shared = member.key == "0"
        if is_shared:
            if not _is_shared_stack(value):
                raise FormatError(path, f"the entry {member.key!r} is not calls and their stack")
            frames = tuple(map(str, value[1]))
            found.update(dict.fromkeys(map(str, value[0]), known.setdefault(frames, frames)))
        elif isinstance(value, list):
            frames = tuple(map(str, value))
            found[member.key] = known.setdefault(frames, frames)
        else:
            raise FormatError(path, f"the stack of {member.key!r} is not a list of frames")
    return found


def _is_shared_stack(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, list) for v in value)


class ApiPositions:
    """Places of calls in the tree of modules; calls without a parent are numbered at the top.

    Sorted by these ids, calls stand in the order in which they began, and a module before what ran
    in it. The files themselves list a module when it has finished.
    """

    def __init__(self, construct: Mapping[str, str | None]) -> None:
        self._construct = construct
        self._ids: dict[str, OpId] = {}
        self._children: dict[str | None, int] = {}
        self.parents = {parent for parent in construct.values() if parent is not None}
        for name in construct:
            self._place(name)

    def of(self, name: str) -> OpId:
        """The id of a call."""
        if name not in self._ids:
            self._ids[name] = OpId((self._next(None),))
        return self._ids[name]

    def scope(self, name: str) -> tuple[str, ...]:
        """The calls around a call, the outermost first."""
        found: list[str] = []
        parent = self._construct.get(name)
        while parent is not None and parent not in found and len(found) < MAX_DEPTH:
            found.insert(0, parent)
            parent = self._construct.get(parent)
        return tuple(found)

    def _place(self, name: str) -> None:
        """Give ids to the calls around a call and then to itself."""
        waiting: list[str] = []
        current: str | None = name
        while current is not None and current not in self._ids:
            if current in waiting or len(waiting) > MAX_DEPTH:
                break  # a damaged file; what is left is at the top
            waiting.append(current)
            current = self._construct.get(current)
        above = current if current in self._ids else None
        for each in reversed(waiting):
            parts = self._ids[above].parts if above is not None else ()
            self._ids[each] = OpId((*parts, self._next(above)))
            above = each

    def _next(self, parent: str | None) -> int:
        number = self._children.get(parent, 0)
        self._children[parent] = number + 1
        return number
