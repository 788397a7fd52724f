"""Whether what a file says of an object has the types that its class declares.

Reports come back from elsewhere (``--resume``), and JSON can hold anything in any place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any], bool]  # of whatever JSON holds


def check_fields(kind: type, values: Mapping[str, Any]) -> None:
    """Compare values with the annotations of a dataclass.

    Args:
        kind: the dataclass.
        values: what its fields are to hold.

    Raises:
        TypeError: a value has another type; the message names the field and the type.
    """
    checks = _checks(kind)
    for name, value in values.items():
        if not checks[name](value):
            raise TypeError(f"{name} of {kind.__name__} cannot be a {type(value).__name__}")


@cache
def _checks(kind: type) -> dict[str, Check]:
    """A check for each field: annotations are taken apart once, not for each line of a report."""
    return {name: _check(hint) for name, hint in get_type_hints(kind).items()}


def _check(hint: Any) -> Check:  # whatever is declared
    origin = get_origin(hint)
    if hint is Any:
        return lambda value: True
    if origin is None:
        return _is_a(hint)
    inner = get_args(hint)
    if origin is Union or origin is UnionType:
        kinds = tuple(_check(each) for each in inner)
        return lambda value: any(check(value) for check in kinds)
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in inner
    if origin is tuple:
        return _tuple_of(inner)
    if issubclass(origin, Mapping):
        is_key, is_item = map(_check, inner)
        return lambda value: (
            isinstance(value, Mapping)
            and all(is_key(key) and is_item(item) for key, item in value.items())
        )
    assert issubclass(origin, Sequence)
    is_each = _check(inner[0])
    return lambda value: isinstance(value, (list, tuple)) and all(map(is_each, value))


def _tuple_of(inner: tuple[Any, ...]) -> Check:
    if inner[-1] is Ellipsis:
        is_each = _check(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(is_each, value))
    checks = tuple(_check(each) for each in inner)
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(checks)
        and all(check(each) for check, each in zip(checks, value, strict=True))
    )


def _is_a(kind: type | None) -> Check:
    if kind is None or kind is NoneType:
        return lambda value: value is None
    if kind is float:
        return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    return lambda value: isinstance(value, kind)
