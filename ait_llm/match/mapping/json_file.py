"""Saved mappings of earlier versions: JSON with a line for each pair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ait_llm.errors import FormatError
from ait_llm.match.mapping.names import plain
from ait_llm.match.mapping.relations import Word
from ait_llm.match.mapping.text import Line, Term, UserMapping, When
from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift, Times
from ait_llm.match.views import Part, Reorder, Repeat, Reshape, Rows, View

SCHEMA = "ait-llm-mapping"
VERSION = 1
_KINDS: Mapping[str, type[View]] = MappingProxyType(
    {
        kind.__name__.lower(): kind
        for kind in (
            Part,
            Rows,
            Reshape,
            Reorder,
            Repeat,
            Shift,
            FirstUse,
            Hidden,
            Times,
            Dequantise,
        )
    }
)


def is_saved_json(content: object) -> bool:
    """True if the content of a JSON file says that it is a saved mapping."""
    return isinstance(content, dict) and content.get("schema") == SCHEMA


def read_saved_json(path: Path, content: object) -> UserMapping:
    """The lines of a saved mapping; of several about the same tensors the first that fits holds.

    Raises:
        FormatError: it is none, or of a newer version; the reason names the pair.
    """
    if not isinstance(content, dict) or not is_saved_json(content):
        raise FormatError(path, f"is not a saved mapping, its schema is not {SCHEMA!r}")
    version = content.get("version")
    if version != VERSION:
        raise FormatError(
            path, f"is of version {version!r}, this program reads {VERSION}", "Update ait-llm"
        )
    lines = content.get("pairs")
    if not isinstance(lines, list):
        raise FormatError(path, "has no list 'pairs'")
    pairs = tuple(_pair(path, number, line) for number, line in enumerate(lines, 1))
    return UserMapping(str(path), pairs, allow_missing=True)


def _pair(path: Path, number: int, line: Any) -> Line:
    try:
        models = line.get("models", ["", ""])
        confidence = float(line.get("confidence", 1.0))
        if not 0 <= confidence <= 1 or len(models) != 2:
            raise ValueError
        named = (str(models[0]), str(models[1]))
        return Line(
            (_tensor(line["golden"]),),
            (_tensor(line["mine"]),),
            f"{path}: pair {number}",
            confidence,
            str(line.get("reason") or line.get("rule", "given")),
            When(named if any(named) else None),
            first_only=True,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        detail = f": {error}" if str(error) else ""
        raise FormatError(
            path, f"pair {number} does not name two tensors as 'op' and 'tensor'{detail}"
        ) from None


def _tensor(side: Any) -> Term:
    call = side.get("call", 0)
    if not (isinstance(side["op"], str) and isinstance(side["tensor"], str) and type(call) is int):
        raise ValueError("names are texts and 'call' is a number")
    words = tuple(_word(view) for view in side.get("views", ()))
    return Term(((plain(side["op"]),),), (str(call),), ((side["tensor"],),), words)


def _word(line: Any) -> Word:
    view = _view(line)
    return Word(str(view), view)


def _view(line: Any) -> View:
    """A view from its JSON form; every field is numbers or a list of numbers."""
    values = {key: value for key, value in line.items() if key != "view"}
    kind = _KINDS.get(line["view"])
    if kind is None:
        raise ValueError(f"unknown view {line['view']!r}")
    for key, value in values.items():
        numbers = value if isinstance(value, list) else [value]
        real = kind in (Dequantise, Hidden, Times) and key != "axis"
        if not all(type(number) is int or (real and type(number) is float) for number in numbers):
            raise ValueError(f"{key!r} of view {line['view']!r} is not numbers")
        if isinstance(value, list):
            values[key] = tuple(value)
    return kind(**values)
