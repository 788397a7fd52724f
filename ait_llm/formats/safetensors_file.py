"""safetensors files: a JSON table of contents, then the tensors. Read without any package."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats.elements import Array, decode
from ait_llm.formats.loaded import LoadedTensor
from ait_llm.formats.mapped import mapped
from ait_llm.formats.opening import not_here, open_regular
from ait_llm.formats.payload import Payload

SUFFIX = ".safetensors"
_MAX_HEADER_BYTES = 100_000_000  # the limit of the format
_DTYPES = MappingProxyType(
    {
        "BOOL": DType.BOOL,
        "U8": DType.UINT8,
        "I8": DType.INT8,
        "I16": DType.INT16,
        "U16": DType.UINT16,
        "I32": DType.INT32,
        "U32": DType.UINT32,
        "I64": DType.INT64,
        "U64": DType.UINT64,
        "F16": DType.FLOAT16,
        "BF16": DType.BFLOAT16,
        "F32": DType.FLOAT32,
        "F64": DType.FLOAT64,
        "C64": DType.COMPLEX64,
        "F8_E4M3": DType.FLOAT8_E4M3FN,
        "F8_E5M2": DType.FLOAT8_E5M2,
        "F8_E8M0": DType.FLOAT8_E8M0,
        "F4": DType.FLOAT4_E2M1,
    }
)
SAFETENSORS_NAMES = MappingProxyType({dtype: name for name, dtype in _DTYPES.items()})


@dataclass(frozen=True, slots=True)
class SafetensorsEntry:
    """Where one tensor of a file lies.

    Attributes:
        desc: its type and shape.
        begin: first byte, from the start of the file.
        length: in bytes.
    """

    desc: TensorDesc
    begin: int
    length: int


def list_safetensors(path: Path | str) -> Mapping[str, TensorDesc]:
    """Names and descriptions of the tensors in the file, in file order.

    Raises:
        FormatError: the table of contents is unreadable or contradicts the file.
    """
    return {name: entry.desc for name, entry in index_safetensors(path).items()}


def index_safetensors(path: Path | str) -> Mapping[str, SafetensorsEntry]:
    """Names and places of the tensors in the file, in file order, for :func:`read_entry`.

    Raises:
        FormatError: the table of contents is unreadable or contradicts the file.
    """
    path = Path(path)
    file, size = _open_header(path)
    with file:
        return _read_contents(path, file, size)


def read_safetensors(path: Path | str, name: str) -> LoadedTensor:
    """Read one tensor.

    Raises:
        FormatError: as :func:`list_safetensors`, or no tensor of that name.
    """
    contents = index_safetensors(path)
    if name not in contents:
        raise FormatError(path, f"holds no tensor called {name!r}")
    return read_entry(path, contents[name])


def read_entry(path: Path | str, entry: SafetensorsEntry, *, mmap: bool = False) -> LoadedTensor:
    """Read one tensor of a file whose table of contents is known.

    Args:
        path: the file.
        entry: as :func:`index_safetensors` returned it.
        mmap: map the file instead of copying the values, which are read-only then.

    Raises:
        FormatError: the file cannot be read, or has become shorter.
    """
    path = Path(path)
    with open_regular(path) as file:
        raw: Array
        if mmap and entry.length and os.fstat(file.fileno()).st_size >= entry.begin + entry.length:
            raw = mapped(file, entry.begin, entry.length, path)
        else:
            file.seek(entry.begin)
            raw = np.frombuffer(bytearray(file.read(entry.length)), dtype=np.uint8)
    try:
        flat = decode(raw, entry.desc.dtype, entry.desc.elements)
    except ValueError as error:
        raise FormatError(path, str(error)) from None
    return LoadedTensor(flat.reshape(entry.desc.shape), entry.desc.dtype)


def safetensors_payloads(path: Path | str) -> dict[str, Payload]:
    """Where each tensor lies, in file order.

    Raises:
        FormatError: as :func:`list_safetensors`.
    """
    path = Path(path)
    contents = index_safetensors(path)
    return {
        name: Payload(path, entry.begin, entry.length, entry.desc.dtype, entry.desc.shape)
        for name, entry in contents.items()
    }


def _open_header(path: Path) -> tuple[BinaryIO, int]:
    """The beginning of a file, with the table of contents, and how large it is."""
    if (elsewhere := not_here(path)) is not None:
        length = int.from_bytes(elsewhere.pread(8, 0), "little")
        return io.BytesIO(elsewhere.pread(8 + min(length, _MAX_HEADER_BYTES), 0)), elsewhere.size
    file = open_regular(path)
    return file, os.fstat(file.fileno()).st_size


def _read_contents(path: Path, file: BinaryIO, size: int) -> dict[str, SafetensorsEntry]:
    prefix = file.read(8)
    if len(prefix) < 8:
        raise FormatError(path, "is too short for a safetensors file")
    header_bytes = int.from_bytes(prefix, "little")
    if header_bytes > min(_MAX_HEADER_BYTES, size - 8):
        raise FormatError(path, f"header says it takes {header_bytes} bytes of a {size} byte file")
    try:
        table = json.loads(file.read(header_bytes))
    except (ValueError, RecursionError):
        raise FormatError(path, "is not a safetensors file, its header is not JSON") from None
    if not isinstance(table, dict):
        raise FormatError(path, "header is not a table of tensors")
    table.pop("__metadata__", None)
    data_start, data_bytes = 8 + header_bytes, size - 8 - header_bytes
    entries = {name: _entry(path, name, item, data_start) for name, item in table.items()}
    position = data_start
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.length)):
        if entry.begin != position:
            raise FormatError(path, "its tensors overlap or leave holes")
        position += entry.length
    if position != size:
        raise FormatError(
            path, f"header says {position - data_start} bytes of data, the file has {data_bytes}"
        )
    return entries


def _entry(path: Path, name: str, item: object, data_start: int) -> SafetensorsEntry:
    problem = FormatError(path, f"header describes tensor {name!r} wrongly")
    if not isinstance(item, dict):
        raise problem
    dtype_name = item.get("dtype")
    shape, offsets = _counts(item.get("shape")), _counts(item.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2 or len(shape) > 32:
        raise problem
    dtype = _DTYPES.get(dtype_name) if isinstance(dtype_name, str) else None
    if dtype is None:
        raise FormatError(path, f"tensor {name!r} has the unknown dtype {dtype_name!r}")
    length = offsets[1] - offsets[0]
    if length != dtype.byte_count(math.prod(shape)):
        raise FormatError(
            path,
            f"tensor {name!r} of {dtype.label} {list(shape)} takes "
            f"{dtype.byte_count(math.prod(shape))} bytes, the header says {length}",
        )
    return SafetensorsEntry(TensorDesc(dtype, shape), data_start + offsets[0], length)


def _counts(value: object) -> tuple[int, ...] | None:
    """The value if it is a list of whole numbers, else None."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value):
        return tuple(value)
    return None
