"""Which calls are recorded: by name, by range of names, and by how risky the function is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ait_llm.dump.api.settings import ApiSettings
from ait_llm.formats.api_list import risk_names

_RISKY_PREFIXES = ("Distributed", "NPU", "MindSpeed")
_PATTERN = re.compile(r"name-regex\((.*)\)")


class Selection:
    """Answers for one step; a scope opens and closes with the names that it sees.

    Args:
        settings: of the capture.
    """

    def __init__(self, settings: ApiSettings) -> None:
        self._names = _matcher(settings.names)
        self._tensors = _matcher(settings.tensor_names)
        self._scope = settings.scope
        self.has_scope = bool(self._scope)
        self.opens_later = any(".backward" in name for name in self._scope)
        """True if gradients may be wanted of calls that are not."""
        self._open = False
        self._closed = False
        self._mixed = settings.level == "mix"
        filtered = settings.scope or settings.names
        self._risk = "ALL" if filtered or settings.level == "L0" else settings.risk_level
        self._core, self._low = risk_names()
        self._wanted: dict[str, bool] = {}
        self._inside: list[str] = []

    def wants_function(self, prefix: str, name: str) -> bool:
        """Whether calls of a function are recorded at all."""
        key = f"{prefix}.{name}"
        wanted = self._wanted.get(key)
        if wanted is None:
            if self._risk == "CORE":
                wanted = prefix in _RISKY_PREFIXES or name in self._core
            elif self._risk == "FOCUS":
                wanted = name not in self._low
            else:
                wanted = True
            self._wanted[key] = wanted
        return wanted

    def begins(self, name: str, modules: Sequence[str] = ()) -> bool:
        """Whether a call is recorded whose turn it is.

        Args:
            name: of the record.
            modules: names of the modules that are running, outermost first.
        """
        if self._scope and not self._within(name):
            return False
        if not self._names:
            return True
        if self._named(name):
            return True
        return self._mixed and any(self._named(module) for module in modules)

    def ended(self, name: str) -> None:
        """Tell that a call is over: a module that ends the scope does so with its end."""
        if self._scope and name == self._scope[1]:
            self._open, self._closed = False, True

    def saves(self, name: str) -> bool:
        """Whether the data of a call are written in a capture of statistics."""
        return bool(self._tensors) and any(part(name) for part in self._tensors)

    def _within(self, name: str) -> bool:
        first, _ = self._scope
        if name == first and not self._closed:
            self._open = True
        return self._open

    def _named(self, name: str) -> bool:
        return any(part(name) for part in self._names)


class _Contains:
    def __init__(self, part: str) -> None:
        self._part = part

    def __call__(self, name: str) -> bool:
        return self._part in name


class _Matches:
    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def __call__(self, name: str) -> bool:
        return self._pattern.search(name) is not None


def _matcher(entries: Sequence[str]) -> list[_Contains | _Matches]:
    found: list[_Contains | _Matches] = []
    for entry in entries:
        pattern = _PATTERN.fullmatch(entry)
        found.append(_Matches(pattern[1]) if pattern else _Contains(entry))
    return found
