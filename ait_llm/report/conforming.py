"""Whether what a file says of an object has the types that its class declares.

Reports come back from elsewhere (``--resume``), and JSON can hold anything in any place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_fields(kind: type, values: Mapping[str, Any]) -> None:
    """Compare values with the annotations of a dataclass.

    Args:
        kind: the dataclass.
        values: what its fields are to hold.

    Raises:
        TypeError: a value has another type; the message names the field and the type.
    """
    hints = _hints(kind)
    for name, value in values.items():
        if not _conforms(value, hints[name]):
            raise TypeError(f"{name} of {kind.__name__} cannot be a {type(value).__name__}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _conforms(value: Any, hint: Any) -> bool:  # whatever JSON holds, and whatever is declared
    origin = get_origin(hint)
    if hint is Any or hint is None:
        return hint is Any or value is None
    if origin is None:
        return _is_a(value, hint)
    inner = get_args(hint)
    if origin is Union or origin is UnionType:
        return any(_conforms(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if inner[-1] is Ellipsis:
            return all(_conforms(each, inner[0]) for each in value)
        return len(value) == len(inner) and all(map(_conforms, value, inner))
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _conforms(key, inner[0]) and _conforms(each, inner[1]) for key, each in value.items()
        )
    assert issubclass(origin, Sequence)
    return isinstance(value, (list, tuple)) and all(_conforms(each, inner[0]) for each in value)


def _is_a(value: object, kind: type) -> bool:
    if kind is NoneType:
        return value is None
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
