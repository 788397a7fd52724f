"""Operation parameters as flat, typed attributes that lose no value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from ait_llm.topology.graph import Param

Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str]"

_INT64 = range(-(2**63), 2**63)
_FLOAT32_MAX = 3.4028234663852886e38  # (2 - 2**-23) * 2**127
POINTER_KEYS = frozenset({"hcclComm", "event"})  # addresses: different in every run
POINTER_MARK = "<pointer>"


def flatten_param(param: Param) -> dict[str, Attribute]:
    """Turn a parameter JSON value into named attributes.

    Objects become dotted names (``normParam.epsilon``). Truth values and whole numbers become
    integers, lists of one kind stay lists, and everything that has no attribute type of its own
    (null, an empty or mixed list, a number too large) becomes text holding compact JSON. Non-zero
    addresses become a marker, so that two runs of one program give the same attributes.

    Args:
        param: an object; a value of any other kind is called ``param``; null and ``""`` are empty.
    """
    if param is None or param == "":
        return {}
    attributes: dict[str, Attribute] = {}
    for name, value in _entries(param):
        unique, number = name, 1
        while unique in attributes:  # {"a.b": 1, "a": {"b": 2}}
            number += 1
            unique = f"{name}__{number}"
        attributes[unique] = value
    return attributes


def compact_json(value: Any) -> str:  # any JSON value
    """Serialise without spaces, keys in their order, text as it is."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _entries(param: Param) -> Iterator[tuple[str, Attribute]]:
    top = list(param.items()) if isinstance(param, dict) else [("param", param)]
    stack = top[::-1]
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict) and value:
            stack.extend((f"{name}.{key}", inner) for key, inner in reversed(value.items()))
        else:
            yield name or "_", _attribute(name, value)


def _attribute(name: str, value: Any) -> Attribute:  # any JSON value but a non-empty object
    if name.rpartition(".")[2] in POINTER_KEYS and value:
        return POINTER_MARK
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value in _INT64:
        return int(value)
    if isinstance(value, float) and _fits_float32(value):
        return value
    if isinstance(value, list) and value:
        if all(type(item) is int and item in _INT64 for item in value):
            return value
        if all(type(item) is float and _fits_float32(item) for item in value):
            return value
        if all(type(item) is str for item in value):
            return value
    return compact_json(value)


def _fits_float32(value: float) -> bool:
    return not math.isfinite(value) or abs(value) <= _FLOAT32_MAX
