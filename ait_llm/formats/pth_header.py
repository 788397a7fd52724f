"""Element type and shape of the tensor in a ``.pth`` file, without torch and without its data.

The archive's small pickle says everything. It is read with an unpickler that knows only the few
names that ``torch.save`` writes for one plain tensor; for any other file the answer is None.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.core import DType
from ait_llm.formats.opening import open_regular

_MAX_PICKLE_BYTES = 1 << 16
_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "",
}
_BY_NAME = {member.torch_name: member for member in DType if member.torch_name is not None}


@dataclass(frozen=True, slots=True)
class PthHeader:
    """What a file says about its tensor."""

    dtype: DType
    shape: tuple[int, ...]


class _Unexpected(Exception):
    """The file is not a plain tensor as torch.save writes it."""


def read_pth_header(path: Path) -> PthHeader | None:
    """Read dtype and shape; None if the file is something else than one plain tensor.

    Raises:
        FormatError: the file cannot be opened.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                member = next(
                    entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")
                )
                if member.file_size > _MAX_PICKLE_BYTES:
                    return None
                with archive.open(member) as record:
                    content = record.read(_MAX_PICKLE_BYTES)
            header = _HeaderUnpickler(io.BytesIO(content)).load()
        except Exception:  # noqa: BLE001 - whatever is odd is left to the full reader's judgement
            return None
    return header if isinstance(header, PthHeader) else None


class _HeaderUnpickler(pickle.Unpickler):
    """Knows the functions that rebuild a tensor, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch._utils":
            return _REBUILDERS[name]
        if module == "collections" and name == "OrderedDict":
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch.storage" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name in _BY_NAME:
            return _BY_NAME[name]
        raise _Unexpected(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        return pid[1]


def _rebuild_v2(storage: str, offset: int, size: tuple[int, ...], *rest: Any) -> PthHeader:
    return PthHeader(_BY_NAME[storage], _shape(size))


def _rebuild_v3(
    storage: str,
    offset: int,
    size: tuple[int, ...],
    stride: Any,
    grad: Any,
    hooks: Any,
    dtype: DType,
    *rest: Any,
) -> PthHeader:
    if not isinstance(dtype, DType):
        raise _Unexpected("no element type")
    return PthHeader(dtype, _shape(size))


def _rebuild_parameter(header: PthHeader, *rest: Any) -> PthHeader:
    return header


def _shape(size: tuple[int, ...]) -> tuple[int, ...]:
    if not all(type(length) is int and length >= 0 for length in size):
        raise _Unexpected("lengths are not whole numbers")
    return tuple(size)


_REBUILDERS = {
    "_rebuild_tensor": _rebuild_v2,
    "_rebuild_tensor_v2": _rebuild_v2,
    "_rebuild_tensor_v3": _rebuild_v3,
    "_rebuild_parameter": _rebuild_parameter,
}
