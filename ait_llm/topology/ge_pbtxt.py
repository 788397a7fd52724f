"""Operators of ``.pbtxt`` graphs: nodes whose attributes are text format within strings.

torchair prints each attribute and each description as the literal of its text format. The key of a
description is ``[i]`` or ``[o]`` and its name; descriptions stand in the operator's order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ait_llm.topology.ge_graph import AttrValue, GeOp, GeTensor
from ait_llm.topology.ge_text import attribute_of, last, make_op, named, tensor_of
from ait_llm.topology.proto_text import Decoder, Message, PassedOver, parse_message, text_of

_INPUT, _OUTPUT = "[i]", "[o]"


def op_from_node(path: Path, line: int, message: Message) -> GeOp:
    """Make an operator of a ``node`` message.

    Args:
        path: the file.
        line: line on which the message ends.
        message: the message, read with :data:`NODE_DECODERS`.

    Raises:
        FormatError: it has no name or no type.
    """
    name, op_type = named(path, line, message, "op")
    ports: list[str] = []
    outputs: list[GeTensor] = []
    attrs: dict[str, AttrValue] = {}
    for key, value in message.get("attr", ()):
        if key.startswith(_INPUT):
            ports.append(value)
        elif key.startswith(_OUTPUT):
            outputs.append(value)
        else:
            attrs[key] = value
    edges = map(text_of, message.get("input", ()))
    return make_op(name, op_type, edges, tuple(ports), tuple(outputs), attrs)


def _entry(message: Message) -> tuple[str, Any]:
    """Key of an attribute, and its value, the description of an output, or the name of an input."""
    key, value = text_of(last(message, "key")), last(message, "value")
    literal = last(value, "s") if isinstance(value, dict) else None
    if key.startswith(_INPUT):
        return key, key[len(_INPUT) :]
    try:
        if key.startswith(_OUTPUT):
            if isinstance(literal, PassedOver):
                raise ValueError(f"a description of {literal.length} characters")
            return key, tensor_of(parse_message(text_of(literal)))
        return key, attribute_of(parse_message(text_of(literal)))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


NODE_DECODERS: dict[str, Decoder] = {"attr": _entry}
