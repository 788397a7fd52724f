"""What the paths of modules say; free of torch, for launchers."""

from __future__ import annotations

import fnmatch
import re

_LAYER = re.compile(r"\.(\d+)(?=\.|$)")


def layer_number(path: str) -> int | None:
    """The layer a module path belongs to: its first number, or None outside the layers."""
    found = _LAYER.search(path)
    return int(found.group(1)) if found else None


def matches(path: str, pattern: str) -> bool:
    """True if a pattern of ``--module-name`` means the module at a path."""
    if pattern.startswith("re:"):
        return re.search(pattern[3:], path) is not None
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"*.{pattern}")
