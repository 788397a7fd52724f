"""A ``CompilerConfig`` made from the options that were recorded of a real torchair.

It refuses what the recorded one refuses: unknown options, values that are not listed, texts that do
not match, paths that do not exist.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any


class Option:
    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.raw = facts.get("default")

    @property
    def value(self) -> str | None:
        if self.raw is None:
            return None
        return {"True": "1", "False": "0"}.get(str(self.raw), str(self.raw))

    def set(self, value: Any) -> None:
        optional, regex = self.facts.get("optional"), self.facts.get("regex")
        if optional and value not in optional:
            raise ValueError(f"Value {value!r} not in optional list {optional!r}")
        if regex and not re.match(regex, value):
            raise ValueError(f"{value!r} does not match {regex}")
        kind = self.facts["option"]
        if kind == "MustExistedPathValue" and not Path(value).is_dir():
            raise FileNotFoundError(f"{value} is not found or is not a file directory!")
        if kind == "FileValue" and not Path(value).is_file():
            raise FileNotFoundError(f"{value} is not found or is not a file!")
        self.raw = value


class Group:
    """Options with the checks of ``NpuBaseConfig``."""

    _options: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_options"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        option = self._options.get(name)
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        elif not isinstance(option, Option):
            raise ValueError(f"{type(self).__name__} has no option {name}")
        else:
            option.set(value)


def _path() -> property:
    """torchair's property ``path``: the real path, in ``_path``."""

    def get(self: Any) -> Any:
        return self._options["_path"].value

    def put(self: Any, value: Any) -> None:
        self._options["_path"].set(str(Path(value).resolve()))

    return property(get, put)


def group_class(name: str, tree: dict[str, Any]) -> type[Group]:
    """A class whose objects have the recorded options."""
    properties = {key: _path() for key, facts in tree.items() if facts.get("option") == "property"}

    def init(self: Any) -> None:
        self.__dict__["_options"] = {
            key: group_class(key, facts["group"])() if "group" in facts else Option(facts)
            for key, facts in tree.items()
            if key not in properties
        }

    return type(name, (Group,), {**properties, "__init__": init})


def module(tree: dict[str, Any]) -> ModuleType:
    """A module ``torchair`` with the recorded ``CompilerConfig``."""
    torchair = ModuleType("torchair")
    torchair.CompilerConfig = group_class("CompilerConfig", tree)  # type: ignore[attr-defined]
    return torchair


def changes(config: Any, before: Any = None, prefix: str = "") -> dict[str, Any]:
    """Options that differ from those of a new configuration, by dotted name."""
    before = type(config)() if before is None else before
    found: dict[str, Any] = {}
    for name, value in config._options.items():
        if isinstance(value, Option):
            if value.raw != before._options[name].raw:
                found[prefix + name] = value.raw
        else:
            found |= changes(value, before._options[name], f"{prefix}{name}.")
    return found
