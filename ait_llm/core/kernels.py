"""Our native reductions and checksums, where the library with them is installed.

The library is optional: callers have another way for when :func:`native_kernels` returns None.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ait_llm

_LIBRARY = "libait_statistics.so"
_DIRECTORY_VARIABLE = "AIT_LLM_LIB_DIR"
# To get the lock back from a busy thread takes longer than to reduce so many elements.
_BRIEF = 1 << 18
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
_six = struct.Struct("=6d").unpack


class Piece(ctypes.Structure):
    """Bytes of a file, and where in them the checksum of its data goes."""

    _fields_ = (
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        ("checksum", ctypes.c_uint64),
    )


_RUNTIME = re.compile(r"^(?:libgomp|libiomp5|libomp)\b.*\.so(?:\.\d+)*$")


def loaded_openmp() -> ctypes.CDLL | None:
    """The OpenMP runtime that this process has loaded, if it is exactly one that we can call.

    torch comes with a runtime of its own; its threads are idle while a hook runs.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    loaded = {entry[5] for entry in fields if len(entry) == 6}
    found = [path for path in loaded if _RUNTIME.match(Path(path).name)]
    if len(found) != 1:
        return None
    try:
        runtime = ctypes.CDLL(found[0])
    except OSError:
        return None
    known = hasattr(runtime, "GOMP_parallel") and hasattr(runtime, "omp_get_max_threads")
    return runtime if known else None


class NativeKernels:
    """The functions of one loaded library; those that read or write all data let other threads run.

    Args:
        path: the library.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is not the library that it should be.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        keeping = ctypes.PyDLL(str(path))  # keeps the interpreter's lock
        self._statistics, self._brief_statistics = library.ait_statistics, keeping.ait_statistics
        for reduce in (self._statistics, self._brief_statistics):
            reduce.argtypes = (
                ctypes.c_int,
                ctypes.c_void_p,
                ctypes.c_uint64,
                ctypes.c_void_p,  # checking that it is a pointer to doubles takes as long again
            )
        self._byte_statistics = library.ait_byte_statistics
        self._byte_statistics.argtypes = (
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_double),
        )
        self._byte_statistics.restype = None
        # Another thread would have the lock for longer than this takes.
        self._sample = keeping.ait_sample
        self._sample.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
        self._sample.restype = ctypes.c_uint64
        self._crc32 = library.ait_crc32
        self._crc32.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
        self._crc32.restype = ctypes.c_uint32
        # equal(address, address, bytes) is not 0 if the bytes are the same.
        self.equal = library.ait_equal
        self.equal.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
        self._use_openmp = library.ait_use_openmp
        self._use_openmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._use_openmp.restype = None
        self._write_file = library.ait_write_file
        self._write_file.argtypes = (
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.POINTER(Piece),
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.POINTER(Piece),
        )
        # Not in libraries of earlier versions. (orders, count): see ait_llm.core.file_orders.
        self.write_files = getattr(library, "ait_write_files", None)
        if self.write_files is not None:
            self.write_files.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
            self.write_files.restype = None
        self._guards = getattr(keeping, "ait_guard_begin", None), keeping
        if self._guards[0] is not None:
            self._guards[0].argtypes = (ctypes.c_void_p, ctypes.c_uint64)

    def guard(self, address: int, size: int) -> int:
        """Let reads of mapped memory survive that its file becomes shorter; they find zeros.

        Returns:
            The number of the range, -1 if it cannot be guarded.
        """
        begin = self._guards[0]
        return -1 if begin is None else int(begin(address, size))

    def is_hit(self, number: int) -> bool:
        """True if zeros were read in a guarded range in place of what the file had."""
        return bool(self._guards[1].ait_guard_hit(number))

    def end_guard(self, number: int) -> bool:
        """The same, and the range is guarded no longer."""
        return bool(self._guards[1].ait_guard_end(number))

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
        reduce = self._brief_statistics if count <= _BRIEF else self._statistics
        if failure := reduce(element, address, count, numbers):
            if failure == 1:
                raise ValueError(f"the native statistics do not know element type {element}")
            raise MemoryError(f"no memory to reduce {count} elements")
        return _six(numbers)

    def byte_statistics(self, address: int, count: int, values: npt.NDArray[np.float64]) -> Numbers:
        """The same for elements of one byte.

        Args:
            address: of the first element.
            count: number of elements.
            values: [256], which number each byte stands for; contiguous.
        """
        numbers = _SixDoubles()
        self._byte_statistics(address, count, values.ctypes.data, numbers)
        return _six(numbers)

    def sample(self, address: int, size: int) -> int:
        """A mark of bytes spread over a stretch of memory; of all of them up to 32 KiB.

        It notices changes; equal marks do not prove equality.
        """
        return int(self._sample(address, size))

    def crc32(self, data: memoryview) -> int:
        """CRC-32 of zip archives of the bytes of ``data``."""
        flat = np.frombuffer(data, dtype=np.uint8)
        return int(self._crc32(0, flat.ctypes.data, flat.size))

    def write_file(
        self, temporary: bytes, path: bytes, head: Piece, address: int, size: int, tail: Piece
    ) -> None:
        """Write head, data and tail with the data's CRC-32 in both, then rename the file.

        Args:
            temporary: name while it is written; removed if that fails.
            path: name in the end; an earlier file is replaced.
            head: what precedes the data.
            address: of the data.
            size: bytes of data.
            tail: what follows the data.

        Raises:
            OSError: the file cannot be created or written.
        """
        error = self._write_file(temporary, path, head, address, size, tail)
        if error:
            raise OSError(error, os.strerror(error), os.fsdecode(path))

    def share_threads(self, runtime: ctypes.CDLL | None) -> None:
        """Reduce and compare large data on the threads of an OpenMP runtime, or on none of them.

        Args:
            runtime: a library of this process that has ``GOMP_parallel``; None for the calling
                thread alone.
        """
        if runtime is None:
            self._use_openmp(None, None)
            return
        self._use_openmp(
            ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p),
            ctypes.cast(runtime.omp_get_max_threads, ctypes.c_void_p),
        )


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
