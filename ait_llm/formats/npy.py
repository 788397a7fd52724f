"""NumPy ``.npy`` files, never pickled ones.

The header is parsed here rather than by NumPy, whose parser lets almost any exception out of a
damaged one.
"""

from __future__ import annotations

import ast
import functools
import io
import math
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.core.parsing import expression
from ait_llm.errors import FormatError
from ait_llm.formats.elements import decode
from ait_llm.formats.loaded import LoadedTensor, dtype_of
from ait_llm.formats.opening import not_here, open_regular
from ait_llm.formats.payload import Payload

SUFFIX = ".npy"
_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}  # size of the header length by major version
_MAX_HEADER_BYTES = 64 * 1024
_MAX_RANK = 32
_PREFIX = 12  # bytes before the header
_TYPE = re.compile(r"[<>|=]?[biufcmMOSUV][0-9]{0,4}(\[[a-z0-9]{1,8}\])?")


def read_npy(path: Path | str, dtype: DType | None = None) -> LoadedTensor:
    """Read an array.

    Args:
        path: the file.
        dtype: logical type of a file whose own type says only the width, which is how NumPy saves
            bf16 and fp8 arrays (``|V2``, ``|V1``).

    Raises:
        FormatError: not an npy file, cut off, too long, pickled, or of a type no tensor has.
    """
    path = Path(path)
    with open_regular(path) as file:
        shape, fortran_order, stored = _read_header(path, file)
        if stored.hasobject:
            raise FormatError(
                path,
                "holds pickled Python objects, which are not loaded because they can run code",
                "Save it as a numeric array",
            )
        expected = math.prod(shape) * stored.itemsize
        present = os.fstat(file.fileno()).st_size - file.tell()
        if present != expected:
            raise FormatError(path, f"header says {expected} bytes of data, the file has {present}")
        try:
            raw = np.frombuffer(bytearray(file.read(expected)), dtype=np.uint8)
        except MemoryError:
            raise FormatError(path, f"its {expected} bytes do not fit into the free memory") from (
                None
            )
    try:
        if stored.kind == "V":
            if dtype is None or dtype.bits != stored.itemsize * 8:
                raise ValueError(
                    f"its elements are raw values of {stored.itemsize} bytes without a type"
                )
            flat = decode(raw, dtype, math.prod(shape))
        else:
            flat = raw.view(stored).astype(stored.newbyteorder("="), copy=False)
        array = flat.reshape(shape, order="F" if fortran_order else "C")
        return LoadedTensor(array, dtype_of(array) if dtype is None else dtype)
    except ValueError as error:
        raise FormatError(path, str(error)) from None


def read_npy_header(path: Path | str) -> TensorDesc:
    """Element type and shape of an array; the type is UNDEFINED where no tensor has it.

    Raises:
        FormatError: not an npy file.
    """
    path = Path(path)
    with _open_header(path)[0] as file:
        shape, _, stored = _read_header(path, file)
    try:
        return TensorDesc(dtype_of(np.empty(0, stored)), shape)
    except ValueError:
        return TensorDesc(DType.UNDEFINED, shape)


def npy_payload(path: Path | str) -> Payload | None:
    """Where the values lie; None if they must be converted on reading (byte order, raw types).

    Raises:
        FormatError: as :func:`read_npy`.
    """
    path = Path(path)
    file, size = _open_header(path)
    with file:
        shape, fortran_order, stored = _read_header(path, file)
        offset, present = file.tell(), size - file.tell()
    if stored.hasobject or stored.kind == "V" or not stored.isnative:
        return None
    expected = math.prod(shape) * stored.itemsize
    if present != expected:
        raise FormatError(path, f"header says {expected} bytes of data, the file has {present}")
    try:
        dtype = dtype_of(np.empty(0, stored))
    except ValueError as error:
        raise FormatError(path, str(error)) from None
    strides = None
    if fortran_order and len(shape) > 1:
        strides = tuple(math.prod(shape[:axis]) for axis in range(len(shape)))
    return Payload(path, offset, expected, dtype, shape, strides=strides)


def _open_header(path: Path) -> tuple[BinaryIO, int]:
    """The beginning of a file, and how large it is."""
    if (elsewhere := not_here(path)) is not None:
        return io.BytesIO(elsewhere.pread(_MAX_HEADER_BYTES + _PREFIX, 0)), elsewhere.size
    file = open_regular(path)
    return file, os.fstat(file.fileno()).st_size


def _read_header(path: Path, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and stored element type."""
    prefix = file.read(len(_MAGIC) + 2)
    if not prefix.startswith(_MAGIC):
        raise FormatError(path, "is not an npy file")
    length_bytes = _LENGTH_BYTES.get(prefix[-2] if len(prefix) > len(_MAGIC) + 1 else 0)
    if length_bytes is None:
        raise FormatError(path, "is of an unknown npy version")
    length = int.from_bytes(file.read(length_bytes), "little")
    if length > _MAX_HEADER_BYTES:
        raise FormatError(path, f"its header of {length} bytes is larger than any tensor needs")
    text = file.read(length)
    if len(text) < length:
        raise FormatError(path, "header is cut off")
    try:
        header = _literal(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise FormatError(path, "header is damaged") from None
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise FormatError(path, "header is damaged")
    shape, descr, fortran_order = header["shape"], header["descr"], header["fortran_order"]
    if (
        not isinstance(shape, tuple)
        or len(shape) > _MAX_RANK
        or not all(type(dim) is int and 0 <= dim < 2**63 for dim in shape)
        or type(fortran_order) is not bool
    ):
        raise FormatError(path, "header is damaged")
    if not isinstance(descr, str) or _TYPE.fullmatch(descr) is None:
        raise FormatError(path, f"holds elements of type {str(descr)[:40]!r}, not numbers")
    try:
        return shape, fortran_order, np.dtype(descr)
    except (TypeError, ValueError):
        raise FormatError(path, f"holds elements of the unknown type {descr!r}") from None


@functools.lru_cache(maxsize=512)  # the files of a dump have few headers, over and over
def _literal(header: bytes) -> Any:  # nobody changes it
    return ast.literal_eval(expression(header.decode("utf-8").strip()))
