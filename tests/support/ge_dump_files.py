"""Composes dump files of the graph engine, as its writer lays them out.

Written from the public message description and apart from the reader, so that a misunderstanding
in one does not hide in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Numbers of the fields of OpInput and OpOutput.
_INPUT = {"type": 1, "format": 2, "shape": 3, "size": 5, "logical": 6, "sub": 7, "address": 8}
_OUTPUT = {"type": 1, "format": 2, "shape": 3, "size": 6, "logical": 7, "sub": 8, "address": 9}

FLOAT, FLOAT16, INT8, UINT8, INT32, INT64, BOOL, BF16 = 1, 2, 3, 4, 7, 8, 11, 27
NC1HWC0, FRACTAL_Z, ND, FRACTAL_NZ, NDC1HWC0 = 3, 4, 2, 29, 32


@dataclass(frozen=True)
class Stored:
    """A tensor of a file: stored bytes and what the header says of them."""

    data: bytes
    type: int
    shape: Sequence[int]
    format: int = ND
    logical: Sequence[int] | None = None
    size: int | None = None
    sub_format: int = 0
    address: int = 0
    origin: tuple[str, int] | None = None


def number(field: int, value: int) -> bytes:
    """A varint field; nothing for zero, as proto3 writes it."""
    return varint(field << 3) + varint(value % (1 << 64)) if value else b""


def text(field: int, value: bytes | str) -> bytes:
    """A length-delimited field."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """A number in groups of 7 bits, lowest first."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def dims(values: Sequence[int]) -> bytes:
    """A Shape message with packed dims."""
    packed = b"".join(varint(value % (1 << 64)) for value in values)
    return text(1, packed) if packed else b""


def of(array: NDArray[np.generic], type: int, **fields: object) -> Stored:
    """A tensor in row-major order."""
    return Stored(array.tobytes(), type, array.shape, logical=array.shape, **fields)


def file_bytes(
    inputs: Sequence[Stored] = (),
    outputs: Sequence[Stored] = (),
    *,
    op_name: str = "",
    time: int = 1732533825146000,
    attributes: Sequence[tuple[str, str]] = (),
    extra: bytes = b"",
) -> bytes:
    """A whole dump file; ``extra`` is added to the header."""
    header = text(1, "2.0") + number(2, time)
    header += b"".join(text(3, _tensor(one, _OUTPUT)) for one in outputs)
    header += b"".join(text(4, _tensor(one, _INPUT)) for one in inputs)
    header += text(6, op_name) if op_name else b""
    header += b"".join(text(7, text(1, name) + text(2, value)) for name, value in attributes)
    header += extra
    values = b"".join(one.data for one in (*inputs, *outputs))
    return len(header).to_bytes(8, "little") + header + values


def write_file(path: Path, *args: Sequence[Stored], **fields: object) -> Path:
    """Write :func:`file_bytes`, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_bytes(*args, **fields))
    return path


def nz(matrix: NDArray[np.generic], c0: int) -> NDArray[np.generic]:
    """[..., M, N] to FRACTAL_NZ [..., N1, M1, 16, C0], element by element."""
    *batch, rows, columns = (1, *matrix.shape) if matrix.ndim == 1 else matrix.shape
    flat = matrix.reshape(-1, rows, columns)
    stored = np.zeros((len(flat), -(-columns // c0), -(-rows // 16), 16, c0), matrix.dtype)
    for b, m, n in np.ndindex(*flat.shape):
        stored[b, n // c0, m // 16, m % 16, n % c0] = flat[b, m, n]
    return stored.reshape(*(() if matrix.ndim == 1 else batch), *stored.shape[1:])


def _tensor(one: Stored, fields: dict[str, int]) -> bytes:
    size = len(one.data) if one.size is None else one.size
    message = number(fields["type"], one.type) + number(fields["format"], one.format)
    message += text(fields["shape"], dims(one.shape)) + number(fields["size"], size)
    if one.logical is not None:
        message += text(fields["logical"], dims(one.logical))
    message += number(fields["sub"], one.sub_format) + number(fields["address"], one.address)
    if one.origin is not None and fields is _OUTPUT:
        message += text(4, text(1, one.origin[0]) + number(2, one.origin[1]))
    return message
