"""Operators of ``.pbtxt`` graphs: nodes whose attributes are text format within strings.

torchair prints each attribute and each description as the literal of its text format. The key of a
description is ``[i]`` or ``[o]`` and its name; descriptions stand in the operator's order.
"""

from __future__ import annotations

from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.topology.ge_graph import AttrValue, GeOp, GeTensor
from ait_llm.topology.ge_text import attribute_of, first, make_op, messages, tensor_of
from ait_llm.topology.proto_text import Message, PassedOver, parse_message, text_of


def op_from_node(path: Path, line: int, message: Message) -> GeOp:
    """Make an operator of a ``node`` message.

    Args:
        path: the file.
        line: line on which the message ends.
        message: the message.

    Raises:
        FormatError: it has no name or type, or an attribute whose text is malformed.
    """
    name, op_type = (text_of(first(message, key)) for key in ("name", "op"))
    if not name or not op_type:
        missing = "op" if name else "name"
        which = f" {name!r}" if name else ""
        raise FormatError(path, f"line {line}: the node{which} that ends here has no {missing}")
    ports: list[str] = []
    outputs: list[GeTensor] = []
    attrs: dict[str, AttrValue] = {}
    for entry in messages(message, "attr"):
        key = text_of(first(entry, "key"))
        value = first(entry, "value")
        literal = first(value, "s") if isinstance(value, dict) else None
        try:
            if isinstance(literal, PassedOver):
                if key.startswith("[o]"):
                    raise ValueError(f"is longer than {literal.length} characters")
                attrs[key] = None
            elif key.startswith("[i]"):
                ports.append(key[3:])
            elif key.startswith("[o]"):
                outputs.append(tensor_of(parse_message(text_of(literal), path)))
            else:
                attrs[key] = attribute_of(parse_message(text_of(literal), path))
        except (ValueError, FormatError) as error:
            reason = error.reason if isinstance(error, FormatError) else error
            raise FormatError(
                path,
                f"line {line}: the node {name!r} that ends here: its attribute {key!r}: {reason}",
            ) from None
    edges = (text_of(value) for value in message.get("input", ()))
    return make_op(name, op_type, edges, tuple(ports), tuple(outputs), attrs)
