"""Tensors of ggml in memory: what the evaluation callback of llama.cpp gets.

The layout of ``struct ggml_tensor`` is that of ``ggml/include/ggml.h``. It is no promise of ggml;
:meth:`Library.check` compares it with what the library's own functions say.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.errors import ProbeError

_SOURCES = 10  # GGML_MAX_SRC
_DIMS = 4
Array = np.ndarray[Any, np.dtype[Any]]


class TensorStruct(ctypes.Structure):
    """``struct ggml_tensor``."""


_Pointer = ctypes.POINTER(TensorStruct)
TensorStruct._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * _DIMS),
    ("nb", ctypes.c_size_t * _DIMS),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", _Pointer * _SOURCES),
    ("view_src", _Pointer),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
]


class _Traits(ctypes.Structure):
    """``struct ggml_type_traits``."""

    _fields_ = [
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
        ("from_float_ref", ctypes.c_void_p),
    ]


_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a graph.

    Attributes:
        address: of its structure, which tells it from others within one graph.
        name: such as ``Qcur-0``.
        op: ``MUL_MAT``; ``NONE`` for weights and inputs; ``SWIGLU`` for one of several in one.
        dtype: ``f32``, ``q4_0``.
        sizes: number of elements of each axis, the fastest first, always four.
        strides: bytes between elements of each axis.
        params: numbers of the operator, as 32-bit integers.
        sources: addresses of what it reads; 0 where nothing is.
        root: address of the tensor whose memory it is a view of; 0 for none.
        offset: bytes from the start of that memory.
        place: name of the memory that it lies in, such as ``CPU`` or ``CPU_REPACK``.
    """

    address: int
    name: str
    op: str
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    params: tuple[int, ...]
    sources: tuple[int, ...]
    root: int
    offset: int
    place: str


_PLAIN: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


class Library:
    """The functions of ggml that read tensors.

    Args:
        path: of ``libggml-base``.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        found: Any = ctypes.CDLL(str(path))
        for name in ("ggml_op_desc", "ggml_type_name", "ggml_backend_buffer_name", "ggml_get_name"):
            getattr(found, name).restype = ctypes.c_char_p
        for name in ("ggml_op_desc", "ggml_get_name", "ggml_nbytes", "ggml_get_data"):
            getattr(found, name).argtypes = [ctypes.c_void_p]
        found.ggml_backend_buffer_name.argtypes = [ctypes.c_void_p]
        found.ggml_nbytes.restype = ctypes.c_size_t
        found.ggml_get_data.restype = ctypes.c_void_p
        found.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
        found.ggml_backend_tensor_get.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
        ]  # fmt: skip
        found.ggml_backend_tensor_get.restype = None
        self._library = found

    def check(self, address: int) -> None:
        """Compare the layout of a tensor with what the library says of it.

        Raises:
            ProbeError: it is another one.
        """
        found = ctypes.cast(address, _Pointer).contents
        told = self._library.ggml_get_name(address), self._library.ggml_get_data(address)
        if (found.name, found.data) != told:
            raise ProbeError(
                "this release of llama.cpp lays tensors out in another way; take "
                "llama-cpp-python 0.3.36"
            )

    def tensor(self, address: int) -> Tensor:
        """What a structure says."""
        found = ctypes.cast(address, _Pointer).contents
        root = found.view_src
        buffer = root.contents.buffer if root else found.buffer
        return Tensor(
            address=address,
            name=found.name.decode("utf-8", "replace"),
            op=self._library.ggml_op_desc(address).decode(),
            dtype=self._library.ggml_type_name(found.type).decode(),
            sizes=tuple(found.ne),
            strides=tuple(found.nb),
            params=tuple(found.op_params),
            sources=tuple(_address(each) for each in found.src),
            root=_address(root),
            offset=found.view_offs,
            place=self._library.ggml_backend_buffer_name(buffer).decode() if buffer else "",
        )

    def size(self, tensor: Tensor) -> int:
        """Bytes of a tensor."""
        return int(self._library.ggml_nbytes(tensor.address))

    def read(self, tensor: Tensor) -> Array:
        """The values, in four axes, the slowest first; quantised ones as float32."""
        count = self.size(tensor)
        data = ctypes.create_string_buffer(count)
        self._library.ggml_backend_tensor_get(tensor.address, data, 0, count)
        return self.decoded(tensor, data.raw)

    def decoded(self, tensor: Tensor, data: bytes) -> Array:
        """The values that bytes in the layout of a tensor stand for."""
        plain = _PLAIN.get(tensor.dtype)
        if plain is not None:
            strided: Array = np.ndarray(
                tensor.sizes[::-1], plain, buffer=data, strides=tensor.strides[::-1]
            )
            return np.ascontiguousarray(strided)
        if tensor.dtype == "bf16":
            halves: Array = np.ndarray(
                tensor.sizes[::-1], np.uint16, buffer=data, strides=tensor.strides[::-1]
            )
            return (halves.astype(np.uint32) << 16).view(np.float32)
        return self._dequantised(tensor, data)

    def _dequantised(self, tensor: Tensor, data: bytes) -> Array:
        """Rows of blocks, each turned into numbers by the library itself."""
        number = ctypes.cast(tensor.address, _Pointer).contents.type
        traits = self._library.ggml_get_type_traits(number).contents
        if not traits.to_float:
            raise ProbeError(f"values of type {tensor.dtype} cannot be read")
        to_float = _ToFloat(traits.to_float)
        width, *others = tensor.sizes
        result = np.empty((*others[::-1], width), np.float32)
        source = np.frombuffer(data, np.uint8)
        for place in np.ndindex(*others[::-1]):
            start = sum(at * by for at, by in zip(place[::-1], tensor.strides[1:], strict=True))
            row = np.ascontiguousarray(source[start:])
            to_float(row.ctypes.data, result[place].ctypes.data, width)
        return result


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def library_of(package: Any) -> Library:
    """The library that a ``llama_cpp`` package has beside it.

    Raises:
        ProbeError: there is none.
    """
    folder = Path(package.__file__).parent / "lib"
    for name in ("libggml-base.so", "libggml-base.dylib"):
        if (folder / name).is_file():
            return Library(folder / name)
    raise ProbeError(f"there is no libggml-base in {folder}")
