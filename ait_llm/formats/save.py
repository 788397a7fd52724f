"""One front door to writing tensor files; ``load`` is the one to reading them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.core.optional import import_optional
from ait_llm.errors import FormatError
from ait_llm.formats.atb_bin import write_tensor
from ait_llm.formats.elements import Array, encode
from ait_llm.formats.ge_write import ge_file_bytes
from ait_llm.formats.loaded import LoadedTensor, dtype_of
from ait_llm.formats.safetensors_file import SAFETENSORS_NAMES
from ait_llm.formats.torch_bridge import to_torch
from ait_llm.formats.writing import new_file

# Format name to the suffix of its files; those of the graph engine have none of their own.
SAVE_FORMATS = {
    "bin": ".bin",
    "npy": ".npy",
    "pt": ".pt",
    "safetensors": ".safetensors",
    "ge": ".ge",
}
# Formats whose files hold several tensors by name.
SAVES_SEVERAL = frozenset({"pt", "safetensors", "ge"})
_NUMPY_OWN = "?bhilqBHILQefdFD"


def save(path: Path | str, tensors: Mapping[str, LoadedTensor], format_name: str) -> list[str]:
    """Write tensors in row-major order to one file, replacing it in one step. Mode 0640.

    A type that the format does not know is widened: bf16, fp8 and int4 become float32 and int8 in
    ``.npy``, for instance. No value changes by that.

    Args:
        path: the file; its folder must exist.
        tensors: by name; one for ``bin`` and ``npy``, whose files have no names.
        format_name: one of :data:`SAVE_FORMATS`.

    Returns:
        What was widened, in words.

    Raises:
        FormatError: the tensors do not fit the format, or the file cannot be written.
        MissingDependencyError: the format needs a package that is not installed.
    """
    path = Path(path)
    if format_name not in SAVES_SEVERAL and len(tensors) != 1:
        raise FormatError(path, f"a {format_name} file holds one tensor, not {len(tensors)}")
    try:
        stored = {name: fitting(each, format_name) for name, each in tensors.items()}
        if format_name == "bin":
            (one,) = stored.values()
            write_tensor(path, one.array, TensorDesc(one.dtype, one.array.shape, FORMAT_ND))
        elif format_name == "npy":
            (one,) = stored.values()
            with new_file(path) as file:
                np.save(file, one.array, allow_pickle=False)
        elif format_name == "pt":
            torch = import_optional("torch", "writing .pt files")
            values = {name: to_torch(each.array, each.dtype) for name, each in stored.items()}
            with new_file(path) as file:
                torch.save(next(iter(values.values())) if set(values) == {""} else values, file)
        elif format_name == "safetensors":
            with new_file(path) as file:
                for part in _safetensors(stored):
                    file.write(part)
        else:
            content = ge_file_bytes(stored, path.stem)
            with new_file(path) as file:
                file.write(content)
    except ValueError as error:
        raise FormatError(path, f"cannot be written: {error}") from None
    return [
        f"{name or 'tensor'}: {tensors[name].dtype.label} as {each.dtype.label}"
        for name, each in stored.items()
        if each.dtype is not tensors[name].dtype
    ]


def fitting(tensor: LoadedTensor, format_name: str) -> LoadedTensor:
    """The tensor in a type that the format knows, contiguous; equal values.

    Raises:
        ValueError: the format has no type that takes them.
    """
    array, dtype = tensor.array, tensor.dtype
    if dtype.numpy_type is None or array.dtype != np.dtype(dtype.numpy_type):
        dtype = dtype_of(array)  # types without a NumPy type come widened
    if not _knows(format_name, array, dtype):
        array, dtype = _widened(array, dtype)
        if not _knows(format_name, array, dtype):
            raise ValueError(f"{format_name} has no type for {dtype.label}")
    # by itself, NumPy gives one value an axis
    return LoadedTensor(np.ascontiguousarray(array).reshape(array.shape), dtype)


def _knows(format_name: str, array: Array, dtype: DType) -> bool:
    if format_name in ("npy", "npz"):
        return array.dtype.char in _NUMPY_OWN
    if format_name == "safetensors":
        return dtype in SAFETENSORS_NAMES and dtype.bits >= 8
    if format_name == "pt":
        return dtype.torch_name is not None
    return dtype.bits >= 8 or not 8 % dtype.bits


def _widened(array: Array, dtype: DType) -> tuple[Array, DType]:
    wide = {
        DType.INT4: DType.INT8,
        DType.INT2: DType.INT8,
        DType.UINT2: DType.UINT8,
        DType.UINT1: DType.UINT8,
        DType.COMPLEX128: DType.COMPLEX128,
    }.get(dtype, DType.FLOAT32)
    return array.astype(wide.numpy_type), wide


def _safetensors(tensors: Mapping[str, LoadedTensor]) -> Iterator[bytes]:
    contents = {}
    values = []
    begin = 0
    for name, tensor in tensors.items():
        data = encode(tensor.array, tensor.dtype)
        contents[name or "tensor"] = {
            "dtype": SAFETENSORS_NAMES[tensor.dtype],
            "shape": list(tensor.array.shape),
            "data_offsets": [begin, begin + len(data)],
        }
        begin += len(data)
        values.append(data)
    header = json.dumps(contents, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    yield from values
