"""Operators of ``.txt`` graphs: protobuf text format of GE's ``OpDef``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ait_llm.errors import FormatError
from ait_llm.topology.ge_graph import ORIGIN_KEY, AttrValue, FxOrigin, GeOp, GeTensor, dtype_of
from ait_llm.topology.proto_text import Decoder, Message, PassedOver, text_of

_INDEX = re.compile(r"(.+):(-?\d{1,9})", re.DOTALL)
_CONTROL = -1


def op_from_text(path: Path, line: int, message: Message) -> GeOp:
    """Make an operator of an ``op`` message.

    Args:
        path: the file.
        line: line on which the message ends.
        message: the message, read with :data:`OP_DECODERS`.

    Raises:
        FormatError: it has no name or no type.
    """
    name, op_type = named(path, line, message, "type")
    return make_op(
        name,
        op_type,
        map(text_of, message.get("input", ())),
        tuple(message.get("input_desc", ())),
        tuple(message.get("output_desc", ())),
        dict(message.get("attr", ())),
    )


def named(path: Path, line: int, message: Message, type_key: str) -> tuple[str, str]:
    """Name and type of an operator.

    Raises:
        FormatError: one of them is missing.
    """
    name, op_type = text_of(last(message, "name")), text_of(last(message, type_key))
    if not name or not op_type:
        which, missing = (f" {name!r}", type_key) if name else ("", "name")
        raise FormatError(path, f"line {line}: the operator{which} that ends here has no {missing}")
    return name, op_type


def make_op(
    name: str,
    op_type: str,
    edges: Iterable[str],
    ports: tuple[str, ...],
    outputs: tuple[GeTensor, ...],
    attrs: dict[str, AttrValue],
) -> GeOp:
    """Sort the inputs of an operator into data and control edges.

    Args:
        name: its name.
        op_type: its type.
        edges: ``{op}:{k}``, ``{op}:-1`` or ``^{op}`` for a control edge, ``""`` for no input.
        ports: names of all inputs.
        outputs: its outputs.
        attrs: its attributes.
    """
    inputs: list[tuple[str, int]] = []
    slots: list[int] = []
    controls: list[str] = []
    slot = 0
    for edge in edges:
        found = _INDEX.fullmatch(edge)
        producer, index = (found[1], int(found[2])) if found else (edge, 0)
        if edge.startswith("^"):
            controls.append(edge[1:])
        elif index == _CONTROL:
            controls.append(producer)
        else:
            if producer:
                inputs.append((producer, index))
                slots.append(slot)
            slot += 1
    return GeOp(name, op_type, tuple(inputs), tuple(slots), ports, tuple(controls), outputs, attrs)


def tensor_of(message: Message) -> GeTensor:
    """Read a ``TensorDescriptor``.

    Raises:
        ValueError: a value is of the wrong kind.
    """
    attrs = dict(map(entry_of, _messages(message, "attr")))
    origin = attrs.pop(ORIGIN_KEY, None)
    dtype_name = text_of(last(message, "dtype"))
    shape = last(message, "shape")
    return GeTensor(
        name=text_of(last(message, "name")),
        dtype=dtype_of(dtype_name),
        dtype_name=dtype_name,
        shape=tuple(map(_int, shape.get("dim", ()))) if isinstance(shape, dict) else None,
        layout=text_of(last(message, "layout")),
        origin=FxOrigin.parse(origin) if isinstance(origin, str) else None,
        attrs=attrs,
    )


def entry_of(message: Message) -> tuple[str, AttrValue]:
    """Read one entry of a map ``attr``.

    Raises:
        ValueError: the value is of the wrong kind.
    """
    key, value = text_of(last(message, "key")), last(message, "value")
    try:
        return key, attribute_of(value) if isinstance(value, dict) else None
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def attribute_of(message: Message) -> AttrValue:
    """Read an ``AttrDef``; what is empty, too long to keep, or bytes, is None.

    Raises:
        ValueError: a value is of the wrong kind.
    """
    for key, values in message.items():
        value = values[-1]
        if key in _SCALARS and not isinstance(value, PassedOver):
            return _SCALARS[key](value)
        if key in _MESSAGES and isinstance(value, dict):
            return _MESSAGES[key](value)
    return None


def port_of(message: Message) -> str:
    """The name in a description of an input; the rest is told by the operator that feeds it."""
    return text_of(last(message, "name"))


def last(message: Message, key: str) -> Any:  # whatever a message can hold
    """The value of a field that is not repeated: of several, protobuf takes the last one."""
    values = message.get(key)
    return values[-1] if values else None


def _messages(message: Message, key: str) -> Iterable[Message]:
    return (value for value in message.get(key, ()) if isinstance(value, dict))


def _list_of(message: Message) -> tuple[AttrValue, ...]:
    for key, values in message.items():
        if key in _SCALARS:
            return tuple(map(_SCALARS[key], values))
        if key in _MESSAGES:
            return tuple(_MESSAGES[key](value) for value in values if isinstance(value, dict))
    return ()


def _lists_of(number: Callable[[Any], AttrValue]) -> Callable[[Message], AttrValue]:
    """Reads ``list_list_i { list_i: 1 list_i: 2 } list_list_i { … }``, and the same of floats."""

    def read(message: Message) -> AttrValue:
        rows = (row for values in message.values() for row in values if isinstance(row, dict))
        return tuple(tuple(number(v) for values in row.values() for v in values) for row in rows)

    return read


def _int(value: Any) -> int:  # a scalar, if the file is right
    text = text_of(value)
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a whole number") from None


def _float(value: Any) -> float:
    text = text_of(value)
    try:
        return float(text.removesuffix("f") if text[-2:-1].isdigit() else text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None


def _bool(value: Any) -> bool:
    text = text_of(value)
    if text not in _TRUE and text not in _FALSE:
        raise ValueError(f"{text[:40]!r} is not a truth value")
    return text in _TRUE


_TRUE, _FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")
_SCALARS: dict[str, Callable[[Any], AttrValue]] = {
    "s": text_of,
    "i": _int,
    "f": _float,
    "b": _bool,
    "dt": _int,
    "expression": text_of,
}
_MESSAGES: dict[str, Callable[[Message], AttrValue]] = {
    "list": _list_of,
    "td": tensor_of,
    "t": lambda tensor: next(map(tensor_of, _messages(tensor, "desc")), None),
    "func": lambda function: text_of(last(function, "name")),
    "g": lambda graph: text_of(last(graph, "name")),
    "list_list_int": _lists_of(_int),
    "list_list_float": _lists_of(_float),
}
OP_DECODERS: dict[str, Decoder] = {
    "attr": entry_of,
    "input_desc": port_of,
    "output_desc": tensor_of,
}
