"""Our native reductions and checksums, where the library with them is installed.

The library is optional: callers have another way for when :func:`native_kernels` returns None.
"""

from __future__ import annotations

import ctypes
import functools
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ait_llm

_LIBRARY = "libait_statistics.so"
_DIRECTORY_VARIABLE = "AIT_LLM_LIB_DIR"
# Below this many bytes the standard library's checksum is as fast as finding the address.
_SMALL = 4096

# Element codes of ait_statistics.h, by torch's and NumPy's name of the type.
ELEMENTS: Mapping[str, int] = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "bfloat16": 3,
    "int16": 4,
    "uint16": 5,
    "int32": 6,
    "uint32": 7,
    "int64": 8,
    "uint64": 9,
}

Numbers = tuple[float, float, float, float, float, float]
"""Maximum, minimum, mean and L2 norm of the finite elements (NaN if there are none), then how many
elements are NaN and how many infinite."""

_SixDoubles = ctypes.c_double * 6


class NativeKernels:
    """The functions of one loaded library; they run without the interpreter lock.

    Args:
        path: the library.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is not the library that it should be.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._statistics = library.ait_statistics
        self._statistics.argtypes = (
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_double),
        )
        self._byte_statistics = library.ait_byte_statistics
        self._byte_statistics.argtypes = (
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_double),
        )
        self._byte_statistics.restype = None
        self._sample = library.ait_sample
        self._sample.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
        self._sample.restype = ctypes.c_uint64
        self._crc32 = library.ait_crc32
        self._crc32.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
        self._crc32.restype = ctypes.c_uint32

    def statistics(self, element: int, address: int, count: int) -> Numbers:
        """Statistics of contiguous elements, with sums in float64.

        Args:
            element: one of :data:`ELEMENTS`.
            address: of the first element.
            count: number of elements.

        Raises:
            ValueError: an unknown element code.
        """
        numbers = _SixDoubles()
        if self._statistics(element, address, count, numbers):
            raise ValueError(f"the native statistics do not know element type {element}")
        high, low, mean, norm, nan, inf = numbers
        return high, low, mean, norm, nan, inf

    def byte_statistics(self, address: int, count: int, values: npt.NDArray[np.float64]) -> Numbers:
        """The same for elements of one byte.

        Args:
            address: of the first element.
            count: number of elements.
            values: [256], which number each byte stands for; contiguous.
        """
        numbers = _SixDoubles()
        self._byte_statistics(address, count, values.ctypes.data, numbers)
        high, low, mean, norm, nan, inf = numbers
        return high, low, mean, norm, nan, inf

    def sample(self, address: int, size: int) -> int:
        """A mark of bytes spread over a stretch of memory; of all of them up to 32 KiB.

        It notices changes; equal marks do not prove equality.
        """
        return int(self._sample(address, size))

    def crc32(self, data: memoryview) -> int:
        """CRC-32 of zip archives of the bytes of ``data``."""
        flat = np.frombuffer(data, dtype=np.uint8)
        return int(self._crc32(0, flat.ctypes.data, flat.size))


@functools.cache
def native_kernels() -> NativeKernels | None:
    """The installed library; None if there is none that can be loaded."""
    override = os.environ.get(_DIRECTORY_VARIABLE)
    # An editable install has two entries: the sources, and site-packages with what was built.
    folders = [Path(entry) / "lib" for entry in ait_llm.__path__]
    for folder in ([Path(override)] if override else []) + folders:
        path = folder / _LIBRARY
        if path.is_file():
            try:
                return NativeKernels(path)
            except (OSError, AttributeError):
                continue  # built for another machine or an older version
    return None


def crc32(data: memoryview) -> int:
    """CRC-32 of zip archives, by the fastest way there is."""
    kernels = native_kernels() if data.nbytes >= _SMALL else None
    return kernels.crc32(data) if kernels is not None else zlib.crc32(data)
