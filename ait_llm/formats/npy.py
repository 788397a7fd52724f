"""NumPy ``.npy`` files, never pickled ones."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.formats.elements import decode
from ait_llm.formats.loaded import LoadedTensor, dtype_of
from ait_llm.formats.opening import open_regular

SUFFIX = ".npy"


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
        try:
            shape, fortran_order, stored = _read_npy_header(file)
        except (ValueError, EOFError, SyntaxError, RecursionError, OverflowError) as error:
            raise FormatError(path, f"is not a readable npy file: {error}") from None
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


def _read_npy_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        header = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"npy version {version} is not supported")
    shape, fortran_order, dtype = header
    if len(shape) > 32 or any(dim < 0 for dim in shape):
        raise ValueError(f"impossible shape {shape}")
    return shape, fortran_order, dtype
