"""From the JSON of a record to its leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ait_llm.dumps.api_values import MAX_DEPTH, ApiValue, Section
from ait_llm.dumps.model import Role
from ait_llm.errors import FormatError

# Keys of a record, the part of an item's name that they become, and the side they are on.
_SECTIONS: tuple[tuple[str, Section, Role], ...] = (
    ("input_args", "input", "in"),
    ("input_kwargs", "input", "in"),
    ("input", "input", "in"),
    ("parameters", "parameters", "in"),
    ("output", "output", "out"),
)


def values_of(name: str, record: Any, data_folder: Path, json_file: Path) -> list[ApiValue]:
    """Every leaf of a record: arguments by position, by name, parameters, then results.

    Args:
        name: of the record.
        record: as decoded.
        data_folder: where its files lie.
        json_file: for messages.

    Raises:
        FormatError: containers are nested too deeply, or a file's name leads out of the folder.
    """
    found: list[ApiValue] = []

    def walk(
        section: Section, role: Role, value: Any, keys: tuple[int | str, ...], keyword: bool = False
    ) -> None:
        if len(keys) > MAX_DEPTH:
            raise FormatError(json_file, f"{name} is nested deeper than {MAX_DEPTH} levels")
        file = None
        if isinstance(value, dict) and value:
            if not _is_leaf(value):
                for key, each in value.items():
                    walk(section, role, each, (*keys, key), keyword)
                return
            if "data_name" in value or "class_type" in value:
                file = _file_of(value, data_folder, json_file)
        elif isinstance(value, list) and value:
            for index, each in enumerate(value):
                walk(section, role, each, (*keys, index), keyword)
            return
        found.append(ApiValue(name, section, keys, role, value, file, keyword))

    if name.endswith(".debug"):
        walk("debug", "out", record, ())
        return found
    if not isinstance(record, dict):
        raise FormatError(json_file, f"the record {name} is not an object")
    if "parameters_grad" in name.rsplit(".", 2)[1:]:
        for parameter, gradients in record.items():
            # a list of the one gradient that this call had
            sole = isinstance(gradients, list) and len(gradients) == 1
            walk("parameters_grad", "out", gradients[0] if sole else gradients, (parameter,))
        return found
    for key, section, role in _SECTIONS:
        value = record.get(key)
        if value or (value is None and key in record):  # an empty list is no argument at all
            walk(section, role, value, (), key == "input_kwargs")
    return found


def _is_leaf(value: dict[str, Any]) -> bool:
    return isinstance(value.get("type"), str) or isinstance(value.get("class_type"), str)


def _file_of(value: Any, data_folder: Path, json_file: Path) -> str | None:
    """The file of a value's elements, None if it has none."""
    if isinstance(value, dict) and "class_type" in value:
        value = value.get("tensor")
    if not isinstance(value, dict) or "data_name" not in value:
        return None
    name = value["data_name"]
    if name is None or name == "-1":
        return None
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise FormatError(
            json_file,
            f"names the file {str(name)[:80]!r}, which does not lie in {data_folder.name}",
            "Do not use this dump; its maker meant to reach other files",
        )
    return f"{data_folder}/{name}"
