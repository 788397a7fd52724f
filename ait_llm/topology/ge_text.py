"""Operators of ``.txt`` graphs: protobuf text format of GE's ``OpDef``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.topology.ge_graph import ORIGIN_KEY, AttrValue, FxOrigin, GeOp, GeTensor, dtype_of
from ait_llm.topology.proto_text import Message, Value, text_of

_INDEX = re.compile(r"(.+):(-?\d{1,9})", re.DOTALL)
_CONTROL = -1


def op_from_text(path: Path, line: int, message: Message) -> GeOp:
    """Make an operator of an ``op`` message.

    Args:
        path: the file.
        line: line on which the message ends.
        message: the message.

    Raises:
        FormatError: it has no name or type, or a value of the wrong kind.
    """
    name, op_type = (text_of(first(message, key)) for key in ("name", "type"))
    if not name or not op_type:
        missing = "type" if name else "name"
        which = f" {name!r}" if name else ""
        raise FormatError(path, f"line {line}: the operator{which} that ends here has no {missing}")
    try:
        return make_op(
            name,
            op_type,
            (text_of(value) for value in message.get("input", ())),
            tuple(text_of(first(m, "name")) for m in messages(message, "input_desc")),
            tuple(tensor_of(m) for m in messages(message, "output_desc")),
            attributes_of(message),
        )
    except ValueError as error:
        raise FormatError(
            path, f"line {line}: the operator {name!r} that ends here: {error}"
        ) from None


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
        ValueError: a dimension is no whole number.
    """
    attrs = attributes_of(message) if "attr" in message else {}
    origin = attrs.pop(ORIGIN_KEY, None)
    dtype_name = text_of(first(message, "dtype"))
    shapes = list(messages(message, "shape"))
    return GeTensor(
        name=text_of(first(message, "name")),
        dtype=dtype_of(dtype_name),
        dtype_name=dtype_name,
        shape=tuple(_int(text_of(d)) for d in shapes[0].get("dim", ())) if shapes else None,
        layout=text_of(first(message, "layout")),
        origin=FxOrigin.parse(origin) if isinstance(origin, str) else None,
        attrs=attrs,
    )


def attributes_of(message: Message) -> dict[str, AttrValue]:
    """Read the entries of the map ``attr``.

    Raises:
        ValueError: a value is of the wrong kind.
    """
    attrs: dict[str, AttrValue] = {}
    for entry in messages(message, "attr"):
        value = first(entry, "value")
        attrs[text_of(first(entry, "key"))] = (
            attribute_of(value) if isinstance(value, dict) else None
        )
    return attrs


def attribute_of(message: Message) -> AttrValue:
    """Read an ``AttrDef``; what is empty, or bytes without a text, is None.

    Raises:
        ValueError: a number or truth value is none.
    """
    for key, values in message.items():
        value = values[-1]
        if key in _SCALARS:
            return _SCALARS[key](text_of(value))
        if isinstance(value, dict) and key in _MESSAGES:
            return _MESSAGES[key](value)
    return None


def first(message: Message, key: str) -> Value | None:
    """The value of a field that is not repeated: protobuf lets the last one win."""
    values = message.get(key)
    return values[-1] if values else None


def messages(message: Message, key: str) -> Iterable[Message]:
    """The messages that a repeated field holds."""
    return (value for value in message.get(key, ()) if isinstance(value, dict))


def _list_of(message: Message) -> tuple[AttrValue, ...]:
    for key, values in message.items():
        if key in _SCALARS:
            return tuple(_SCALARS[key](text_of(value)) for value in values)
        if key in _MESSAGES:
            return tuple(_MESSAGES[key](value) for value in values if isinstance(value, dict))
    return ()


def _lists_of(number: Callable[[str], AttrValue]) -> Callable[[Message], tuple[AttrValue, ...]]:
    """``list_list_i { list_i: 1 list_i: 2 } list_list_i { … }`` and the same of floats."""

    def read(message: Message) -> tuple[AttrValue, ...]:
        rows = [row for values in message.values() for row in values if isinstance(row, dict)]
        return tuple(
            tuple(number(text_of(value)) for values in row.values() for value in values)
            for row in rows
        )

    return read


def _int(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text.removesuffix("f") if text[-2:-1].isdigit() else text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None


def _bool(text: str) -> bool:
    if text not in ("true", "false", "1", "0", "t", "f", "True", "False"):
        raise ValueError(f"{text[:40]!r} is not a truth value")
    return text in ("true", "1", "t", "True")


_SCALARS: dict[str, Callable[[str], AttrValue]] = {
    "s": str,
    "i": _int,
    "f": _float,
    "b": _bool,
    "dt": str,
    "expression": str,
}
_MESSAGES: dict[str, Callable[[Message], AttrValue]] = {
    "list": _list_of,
    "td": tensor_of,
    "t": lambda tensor: next((tensor_of(desc) for desc in messages(tensor, "desc")), None),
    "func": lambda function: text_of(first(function, "name")),
    "g": lambda graph: text_of(first(graph, "name")),
    "list_list_int": _lists_of(_int),
    "list_list_float": _lists_of(_float),
}
