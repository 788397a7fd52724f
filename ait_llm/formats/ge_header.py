"""The description at the head of a dump file of the graph engine.

``DumpData`` of ``dump_data.proto`` (hicann/runtime). Only places and numbers are taken from it; a
field that is not known is stepped over, so that newer files stay readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from ait_llm.formats.ge_wire import BYTES, VARINT, Buffer, fields, packed, signed

_MAX_RANK = 64
_MAX_TENSORS = 1 << 16
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OriginalOp:
    """Where a tensor came from in the graph before fusion.

    Attributes:
        name: of the operator.
        output: which of its outputs.
        type: element type there, a code of ``ge_types``.
        format: layout there.
    """

    name: str
    output: int = 0
    type: int = 0
    format: int = 0


@dataclass(frozen=True, slots=True)
class Described:
    """One tensor as the header describes it.

    Attributes:
        role: input or output of the operator.
        index: position among the inputs that were fed, or among the outputs.
        type: element type, a code of ``ge_types``.
        format: layout of the stored elements.
        sub_format: group count of FRACTAL_Z; 0 and 1 mean none.
        shape: stored dims; -1 and -2 where they were unknown.
        original_shape: logical dims, None if not recorded.
        size: bytes in the file.
        address: on the device, 0 if there was none or it was not recorded.
        original: operator before fusion, for outputs whose origin was recorded.
        embedded: first position of values within the header and the one behind them, if there.
    """

    role: Literal["in", "out"]
    index: int
    type: int
    format: int
    sub_format: int
    shape: tuple[int, ...]
    original_shape: tuple[int, ...] | None
    size: int
    address: int
    original: OriginalOp | None
    embedded: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Description:
    """A whole header.

    Attributes:
        version: of the format.
        time: of the dump, microseconds since 1970, 0 if not recorded.
        op_name: full name of the operator, with its slashes and dots.
        inputs, outputs: in order.
        attributes: of the operator, as text.
        trailing: bytes of buffers and workspaces behind the tensors.
    """

    version: str
    time: int
    op_name: str
    inputs: tuple[Described, ...]
    outputs: tuple[Described, ...]
    attributes: Mapping[str, str]
    trailing: int


# Numbers of the fields that differ between inputs and outputs:
# embedded values, size, original shape, sub format, address.
_INPUT_FIELDS = (4, 5, 6, 7, 8)
_OUTPUT_FIELDS = (5, 6, 7, 8, 9)


def parse_description(data: Buffer, pos: int, end: int) -> Description:
    """Parse the header between two positions.

    Raises:
        ValueError: it is damaged.
    """
    version = op_name = ""
    time = trailing = 0
    inputs: list[Described] = []
    outputs: list[Described] = []
    attributes: dict[str, str] = {}
    for number, wire, start, stop in fields(data, pos, end):
        if wire == BYTES:
            if number == 4:
                inputs.append(_tensor(data, start, stop, "in", len(inputs)))
            elif number == 3:
                outputs.append(_tensor(data, start, stop, "out", len(outputs)))
            elif number == 6:
                op_name = _text(data, start, stop)
            elif number == 1:
                version = _text(data, start, stop)
            elif number == 7:
                name, value = _attribute(data, start, stop)
                attributes[name] = value
            elif number in (5, 8):  # a buffer, a workspace: raw values behind the outputs
                trailing += _number(data, start, stop, 3)
            if len(inputs) + len(outputs) > _MAX_TENSORS:
                raise ValueError(f"describes more than {_MAX_TENSORS} tensors")
        elif wire == VARINT and number == 2:
            time = start
    return Description(
        version=version,
        time=time,
        op_name=op_name,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=MappingProxyType(attributes) if attributes else _NO_ATTRIBUTES,
        trailing=trailing,
    )


def _tensor(data: Buffer, pos: int, end: int, role: Literal["in", "out"], index: int) -> Described:
    embedded_at, size_at, original_at, sub_at, address_at = (
        _INPUT_FIELDS if role == "in" else _OUTPUT_FIELDS
    )
    kind = format = size = sub_format = address = 0
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] | None = None
    original: OriginalOp | None = None
    embedded: tuple[int, int] | None = None
    for number, wire, start, stop in fields(data, pos, end):
        if wire == VARINT:
            if number == 1:
                kind = start
            elif number == 2:
                format = start
            elif number == size_at:
                size = start
            elif number == sub_at:
                sub_format = start
            elif number == address_at:
                address = start
        elif wire == BYTES:
            if number == 3:
                shape += _dims(data, start, stop)
            elif number == original_at:
                original_shape = (original_shape or ()) + _dims(data, start, stop)
            elif number == embedded_at:
                embedded = (start, stop) if stop > start else None
            elif number == 4:  # of an output; of an input it is the one above
                original = _original(data, start, stop)
    return Described(
        role,
        index,
        kind,
        format,
        sub_format,
        shape,
        original_shape,
        size,
        address,
        original,
        embedded,
    )


def _dims(data: Buffer, pos: int, end: int) -> tuple[int, ...]:
    dims: list[int] = []
    for number, wire, start, stop in fields(data, pos, end):
        if number != 1:
            continue
        values: Iterator[int] = iter((start,)) if wire == VARINT else iter(())
        if wire == BYTES:
            values = packed(data, start, stop)
        for value in values:
            dims.append(signed(value))
            if len(dims) > _MAX_RANK:
                raise ValueError(f"describes a tensor of more than {_MAX_RANK} dims")
    return tuple(dims)


def _original(data: Buffer, pos: int, end: int) -> OriginalOp:
    name, numbers = "", [0, 0, 0]
    for number, wire, start, stop in fields(data, pos, end):
        if number == 1 and wire == BYTES:
            name = _text(data, start, stop)
        elif 2 <= number <= 4 and wire == VARINT:
            numbers[number - 2] = start
    return OriginalOp(name, *numbers)


def _attribute(data: Buffer, pos: int, end: int) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for number, wire, start, stop in fields(data, pos, end):
        if wire == BYTES and number in texts:
            texts[number] = _text(data, start, stop)
    return texts[1], texts[2]


def _number(data: Buffer, pos: int, end: int, wanted: int) -> int:
    value = 0
    for number, wire, start, _ in fields(data, pos, end):
        if number == wanted and wire == VARINT:
            value = start
    return value


def _text(data: Buffer, pos: int, end: int) -> str:
    return bytes(data[pos:end]).decode("utf-8", "replace")
