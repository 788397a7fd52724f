"""Writing dump files of the graph engine: tensors of one operator in row-major order."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ait_llm.core import DType
from ait_llm.formats.elements import encode
from ait_llm.formats.ge_types import GE_TYPES
from ait_llm.formats.loaded import LoadedTensor

_CODES = {dtype: code for code, (_, dtype) in reversed(list(enumerate(GE_TYPES)))}
_ND = 2
# Fields of the description and of an output in it.
_VERSION, _OUTPUTS, _INPUTS, _NAME = 1, 3, 4, 6
_TYPE, _FORMAT, _SHAPE = 1, 2, 3
_SIZE, _LOGICAL = {_INPUTS: 5, _OUTPUTS: 6}, {_INPUTS: 6, _OUTPUTS: 7}
_INPUT = re.compile(r"intensor\d+")


def ge_file_bytes(tensors: Mapping[str, LoadedTensor], op_name: str) -> bytes:
    """A dump file of the tensors in their order: inputs are called ``intensor0`` and so on.

    Raises:
        ValueError: a tensor's type has no code in such files.
    """
    header = _text(_VERSION, b"2.0")
    values = []
    # values of inputs come first
    for name in sorted(tensors, key=lambda name: _INPUT.fullmatch(name) is None):
        tensor = tensors[name]
        role = _OUTPUTS if _INPUT.fullmatch(name) is None else _INPUTS
        code = _CODES.get(tensor.dtype)
        if code is None or tensor.dtype is DType.UNDEFINED:
            raise ValueError(f"{name}: {tensor.dtype.label} has no code in GE dump files")
        data = encode(tensor.array, tensor.dtype)
        dims = b"".join(_varint(size) for size in tensor.array.shape)
        shape = _text(1, dims) if dims else b""
        message = _number(_TYPE, code) + _number(_FORMAT, _ND) + _text(_SHAPE, shape)
        message += _number(_SIZE[role], len(data)) + _text(_LOGICAL[role], shape)
        header += _text(role, message)
        values.append(data)
    header += _text(_NAME, op_name.encode())
    return len(header).to_bytes(8, "little") + header + b"".join(values)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
