"""GE graphs made and printed by Google's protobuf library: what our reader is held against.

The fields are those of torchair's ``ge_ir.proto``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_OPTIONAL, _REPEATED = 1, 3
_TYPES = {"float": 2, "int64": 3, "int32": 5, "bool": 8, "string": 9, "message": 11, "bytes": 12}
_ENUM = 14
_DATA_TYPES = {
    "DT_UNDEFINED": 0,
    "DT_FLOAT": 1,
    "DT_FLOAT16": 2,
    "DT_INT8": 3,
    "DT_INT32": 7,
    "DT_INT64": 8,
    "DT_BOOL": 11,
    "DT_DOUBLE": 12,
    "DT_BF16": 27,
    "DT_INT4": 28,
}
# message: name number type, "*" for repeated; maps are repeated entries in text format and in bytes
_MESSAGES = {
    "Shape": "dim 1 *int64",
    "TensorDescriptor": (
        "name 1 string, dtype 2 DataType, shape 3 Shape, layout 4 string, attr 5 *Entry, "
        "device_type 14 string"
    ),
    "TensorDef": "desc 1 TensorDescriptor, data 2 bytes",
    "ListValue": "s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, dt 12 *int64",
    "ListInt": "list_i 1 *int64",
    "ListListInt": "list_list_i 1 *ListInt",
    "AttrDef": (
        "list 1 ListValue, s 2 bytes, i 3 int64, f 4 float, b 5 bool, td 11 TensorDescriptor, "
        "t 12 TensorDef, list_list_int 14 ListListInt, dt 15 int64"
    ),
    "Entry": "key 1 string, value 2 AttrDef",
    "OpDef": (
        "name 1 string, type 2 string, input 5 *string, attr 10 *Entry, "
        "input_desc 33 *TensorDescriptor, output_desc 34 *TensorDescriptor"
    ),
    "GraphDef": "name 1 string, op 6 *OpDef, attr 11 *Entry",
    "ModelDef": "name 1 string, version 2 int32, graph 7 *GraphDef, attr 11 *Entry",
}


@cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="ge.proto", package="ge.proto", syntax="proto3")
    enum = file.enum_type.add(name="DataType")
    for name, number in _DATA_TYPES.items():
        enum.value.add(name=name, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttrDef":
            message.oneof_decl.add(name="value")
        for text in fields.split(", "):
            key, number, kind = text.split()
            field = message.field.add(name=key, number=int(number))
            field.label = _REPEATED if kind.startswith("*") else _OPTIONAL
            kind = kind.removeprefix("*")
            if name == "AttrDef":  # one of them is set, and printed even where it is zero
                field.oneof_index = 0
            if kind == "DataType":
                field.type, field.type_name = _ENUM, ".ge.proto.DataType"
            elif kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = _TYPES["message"], f".ge.proto.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ge.proto.{name}"))
        for name in _MESSAGES
    }


def new(message: str, **fields: Any) -> Any:
    """A message of that type."""
    return _classes()[message](**fields)


def parse(text: str, message: str = "GraphDef") -> Any:
    """What the protobuf library reads in a text."""
    from google.protobuf import text_format

    return text_format.Parse(text, new(message), allow_unknown_field=True)


def to_text(graph: Any, *, one_line: bool = False, utf8: bool = False) -> str:
    """The text format that the protobuf library prints."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(graph, as_one_line=one_line, as_utf8=utf8)
    return text


def to_pbtxt(graph: Any) -> str:
    """The ``.pbtxt`` form that torchair prints."""
    lines: list[str] = []

    def entry(key: str, message: Any) -> None:
        lines.append("    attr {")
        lines.append(f'        key: "{key}"')
        lines.append("        value {")
        lines.append(f"            s: {repr(to_text(message).encode())[1:]}")
        lines.append("        }")
        lines.append("    }")

    for op in graph.op:
        lines += ["node {", f'    name: "{op.name}"', f'    op: "{op.type}"']
        for edge in op.input:
            control = edge.endswith(":-1")
            lines.append(f'    input: "{"^" + edge[:-3] if control else edge}"')
        for attr in op.attr:
            entry(attr.key, attr.value)
        for description in op.input_desc:
            entry(f"[i]{description.name}", description)
        for description in op.output_desc:
            entry(f"[o]{description.name}", description)
        lines.append("}")
    return "\n".join(lines) + "\n"
