"""The settings of an accuracy check in msprobe's ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.apicheck.checker import Selection
from ait_llm.errors import FormatError
from ait_llm.formats.opening import read_small

_MAX_BYTES = 16 << 20
_SECTIONS = ("acc_check", "run_ut")


@dataclass(frozen=True, slots=True)
class CheckFile:
    """What the file asks for.

    Attributes:
        selection: white and black list.
        error_data: folder for error data; None for that of the tables.
    """

    selection: Selection = field(default_factory=Selection)
    error_data: Path | None = None


def read_check_file(path: Path | None) -> CheckFile:
    """Read the section ``acc_check``, or ``run_ut`` as it was called before.

    Args:
        path: ``config.json``; None for the defaults.

    Raises:
        FormatError: it is no such file, or a setting has a wrong type.
    """
    if path is None:
        return CheckFile()
    raw = read_small(path, _MAX_BYTES)
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FormatError(path, "is not a JSON object of settings")
    section = next((found[name] for name in _SECTIONS if isinstance(found.get(name), dict)), None)
    if section is None:
        raise FormatError(path, "has no section 'acc_check'", "Leave out -config, or add it")
    folder = section.get("error_data_path")
    if folder is not None and not isinstance(folder, str):
        raise FormatError(path, "has an error_data_path that is no text")
    # msprobe's own file says "./", which is to say nothing
    is_set = bool(folder) and folder not in (".", "./")
    return CheckFile(
        Selection(_names(path, section, "white_list"), _names(path, section, "black_list")),
        Path(folder).expanduser().absolute() if is_set and folder else None,
    )


def _names(path: Path, section: Mapping[str, Any], key: str) -> frozenset[str]:
    names = section.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(path, f"has a {key} that is no list of names", 'Write ["add", "matmul"]')
    return frozenset(names)
