"""Layouts in a file, to be looked at, corrected and given back.

A yaml file of lines ``name of a tensor: layout``. A name is that of the side with more ranks, as
the table shows it; ``*`` stands for anything. If both sides have several ranks, the layout of the
side with fewer stands before a bar: ``shard 0 | shard 0``.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ait_llm.compare.api.settings import read_yaml
from ait_llm.compare.api.shards.inferring import Layouts
from ait_llm.compare.api.shards.layout import Layout, parse_layout
from ait_llm.errors import FormatError
from ait_llm.report.files import replacing


@dataclass(frozen=True, slots=True)
class SavedLayouts:
    """What a file says.

    Attributes:
        exact: by name.
        patterns: for names with ``*``, the first that fits counts.
    """

    exact: Mapping[str, Layouts]
    patterns: tuple[tuple[re.Pattern[str], Layouts], ...] = ()

    def of(self, name: str) -> Layouts | None:
        """The layouts of a tensor, None if the file does not say."""
        found = self.exact.get(name)
        if found is not None:
            return found
        return next((each for pattern, each in self.patterns if pattern.fullmatch(name)), None)


def read_layouts(path: Path) -> SavedLayouts:
    """Read a file of layouts.

    Raises:
        FormatError: it is no such file.
        MissingDependencyError: PyYAML is not installed.
    """
    content = read_yaml(path, "a file of layouts")
    if not isinstance(content, dict) or not content:
        raise FormatError(path, "holds no lines 'name of a tensor: layout'")
    exact: dict[str, Layouts] = {}
    patterns = []
    for name, text in content.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise FormatError(path, f"{name!r} has no layout, such as 'shard 0'")
        few, _, many = text.rpartition("|")
        try:
            layouts = Layouts(parse_layout(few) if few else Layout("replicate"), parse_layout(many))
        except ValueError as error:
            raise FormatError(path, f"{name}: {error}") from None
        if "*" in name:
            patterns.append((re.compile(fnmatch.translate(name)), layouts))
        else:
            exact[name] = layouts
    return SavedLayouts(exact, tuple(patterns))


def write_layouts(path: Path, layouts: Mapping[str, Layouts]) -> None:
    """Write a file of layouts.

    Raises:
        UsageError: it cannot be written.
    """
    with replacing(path) as file:
        for name, each in layouts.items():
            file.write(f"{json.dumps(name)}: {each}\n")
