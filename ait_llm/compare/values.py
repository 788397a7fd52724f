"""Opening the values of one tensor so that they can be read in blocks and given back.

Large tensors are mapped: the kernel reads pages when they are used, and :meth:`Values.release`
hands them back, so that memory does not follow the size of a tensor. Small ones are read at once,
which costs less than a mapping.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ait_llm.core import FORMAT_ND, DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.formats import load
from ait_llm.formats.elements import Array, decode
from ait_llm.formats.ge_values import payload_to_logical
from ait_llm.formats.layout import stored_shape, to_nd
from ait_llm.formats.locate import locate
from ait_llm.formats.mapped import Guard, address_of
from ait_llm.formats.names import PLAIN_FORMATS
from ait_llm.formats.opening import open_descriptor
from ait_llm.formats.payload import Payload

_MAP_FROM = 1 << 20  # bytes; below, page faults cost more than a copy
_PAGE = mmap.PAGESIZE
# Large tensors that must be unpacked as a whole lie in memory for one thread at a time. A thread
# may hold both sides of its pair.
_UNPACKED_FROM = 32 << 20
_UNPACKED = threading.RLock()


class Values:
    """The values of one tensor; a context manager that lets go of them.

    Attributes:
        array: the values in row-major dims, with their true element type; often a mapped file.
            Large booleans come as bytes, of which any but zero is true.
        dtype: logical element type.
        stamp: size in bytes and time of the last change in ns of the file, None without one.
    """

    def __init__(
        self,
        array: Array,
        dtype: DType,
        *,
        stamp: tuple[int, int] | None = None,
        mapping: mmap.mmap | None = None,
        offset: int = 0,
        path: Path | str | None = None,
    ) -> None:
        self.array = array
        self.dtype = dtype
        self.stamp = stamp
        self._mapping = mapping
        self._offset = offset  # of the mapping within the file
        self._path = path
        self._unpacked = False
        self._guard: Guard | None = None
        if mapping is not None and path is not None:
            self._guard = Guard(mapping, self._base_address(), len(mapping), path)

    @property
    def is_mapped(self) -> bool:
        """True if the values are read from the file when they are used."""
        return self._mapping is not None

    def check(self) -> None:
        """Make sure that the file has the bytes that are mapped, and had those that were read.

        Reading a mapping beyond the end of its file gives zeros, or, without our native library,
        kills the process.

        Raises:
            FormatError: it became shorter.
        """
        if self._mapping is None or self._path is None:
            return
        if self._guard is not None:
            self._guard.check()
        if self._mapping.size() < self._offset + len(self._mapping):
            raise FormatError(self._path, "became shorter while it was read")

    def release(self, block: Array) -> None:
        """Give back the memory under a contiguous part of :attr:`array`; its values stay readable.

        Args:
            block: a view into the array.
        """
        if self._mapping is None:
            return
        start = block.__array_interface__["data"][0] - self._base_address()
        first = start // _PAGE * _PAGE  # what comes before the block was read before it
        stop = (start + block.nbytes) // _PAGE * _PAGE
        if 0 <= first < stop <= len(self._mapping):
            self._mapping.madvise(mmap.MADV_DONTNEED, first, stop - first)

    def release_all(self) -> None:
        """Give back all memory under the values; they stay readable."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def _base_address(self) -> int:
        assert self._mapping is not None
        return address_of(self._mapping)

    def close(self) -> None:
        """Let go of the values; views that are still used keep the mapping alive."""
        self.array = np.empty(0, np.uint8)
        self._mapping = self._guard = None
        if self._unpacked:
            self._unpacked = False
            _UNPACKED.release()

    def __enter__(self) -> Values:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._guard is not None:
                self._guard.check()  # nothing may be said of zeros that stand for what is gone
        finally:
            self.close()


def open_values(tensor: Tensor) -> Values:
    """Open the values of a tensor of a dump or of a file.

    Raises:
        FormatError: there are none, or the file is damaged.
        MissingDependencyError: the file needs a package that is not installed.
    """
    payload = tensor.payload()
    if payload is not None:
        return open_payload(payload)
    try:
        status = tensor.path.stat()
    except OSError as error:
        raise FormatError(tensor.path, f"cannot be read: {error.strerror}") from None
    stamp = (status.st_size, status.st_mtime_ns)
    return _unpack(status.st_size, lambda: Values(tensor.nd(), tensor.dtype, stamp=stamp))


def _unpack(size: int, load_values: Callable[[], Values]) -> Values:
    """Values that lie in memory; large ones wait for their turn."""
    if size < _UNPACKED_FROM:
        return load_values()
    _UNPACKED.acquire()
    try:
        values = load_values()
    except BaseException:
        _UNPACKED.release()
        raise
    values._unpacked = True
    return values


def open_file(path: Path, name: str | None = None) -> Values:
    """Open a tensor of a file.

    Args:
        path: any file that ``formats.load`` reads.
        name: which tensor, for files that hold several.

    Raises:
        FormatError, MissingDependencyError: as ``formats.load``.
    """
    payloads = locate(path)
    if payloads is not None:
        if name is None and len(payloads) == 1:
            return open_payload(next(iter(payloads.values())))
        if name is not None and name in payloads:
            return open_payload(payloads[name])
    loaded = load(path, name)  # also says what is wrong with the name
    array = to_nd(loaded.array, loaded.array.shape, loaded.format, loaded.dtype)
    return Values(array, loaded.dtype)


def open_payload(payload: Payload) -> Values:
    """Open the values of a tensor whose place is known.

    Raises:
        FormatError: the file vanished, changed, or holds values that cannot be represented.
    """
    path, dtype = payload.path, payload.dtype
    if payload.kept is not None:
        content, stamp = payload.kept
        try:
            return Values(_shaped(np.frombuffer(content, np.uint8), payload), dtype, stamp=stamp)
        except (ValueError, OverflowError) as error:
            raise FormatError(path, str(error)) from None
    descriptor, status = open_descriptor(path)
    try:
        if status.st_size < payload.offset + payload.length:
            raise FormatError(path, "became shorter while it was read")
        stamp = (status.st_size, status.st_mtime_ns)
        if payload.length < _MAP_FROM or not _can_be_viewed(payload):
            return _unpack(
                payload.length,
                lambda: Values(_shaped(_read(descriptor, payload), payload), dtype, stamp=stamp),
            )
        start = payload.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        length = payload.offset + payload.length - start
        mapping = mmap.mmap(descriptor, length, prot=mmap.PROT_READ, offset=start)
        raw = np.frombuffer(mapping, np.uint8, payload.length, payload.offset - start)
        return Values(
            _shaped(raw, payload),
            dtype,
            stamp=stamp,
            mapping=mapping,
            offset=start,
            path=path,
        )
    except (ValueError, OverflowError) as error:
        raise FormatError(path, str(error)) from None
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise FormatError(
            path, f"its {payload.length} bytes do not fit into the free memory"
        ) from None
    finally:
        os.close(descriptor)  # a mapping keeps one of its own


def _read(descriptor: int, payload: Payload) -> Array:
    if payload.length < _MAP_FROM:
        data = os.pread(descriptor, payload.length, payload.offset)
        if len(data) < payload.length:
            raise FormatError(payload.path, "became shorter while it was read")
        return np.frombuffer(data, np.uint8)
    raw = np.empty(payload.length, np.uint8)
    filled = 0
    while filled < payload.length:
        count = os.preadv(descriptor, [raw[filled:].data], payload.offset + filled)
        if not count:
            raise FormatError(payload.path, "became shorter while it was read")
        filled += count
    return raw


def _can_be_viewed(payload: Payload) -> bool:
    """True if the stored bytes are the elements in an order that NumPy can look at."""
    dtype = payload.dtype
    plain = payload.format in PLAIN_FORMATS
    return plain and dtype.numpy_type is not None and dtype.bits >= 8


def _shaped(raw: Array, payload: Payload) -> Array:
    dtype, shape = payload.dtype, payload.shape
    if payload.strides is not None:
        return _strided(raw, payload)
    elements = payload.elements
    if dtype.bits >= 8 and payload.length != dtype.byte_count(elements):
        elements = payload.length * 8 // dtype.bits  # a padded private format
    flat = _elements(raw, dtype, elements)
    if payload.format in PLAIN_FORMATS:
        return flat.reshape(shape)
    if payload.logical is not None:
        return payload_to_logical(flat, payload)
    stored = flat.reshape(stored_shape(shape, payload.format, dtype, elements))
    return to_nd(stored, shape, payload.format, dtype)


def _elements(raw: Array, dtype: DType, elements: int) -> Array:
    if dtype is DType.BOOL and raw.size == elements >= _MAP_FROM:
        return raw  # decoding copies: a device may store any byte but zero for true
    return decode(raw, dtype, elements)


def _strided(raw: Array, payload: Payload) -> Array:
    strides = payload.strides
    if strides is None or payload.format != FORMAT_ND or payload.dtype.bits < 8:
        raise ValueError("elements in this order cannot be read")
    flat = decode(raw, payload.dtype, payload.length * 8 // payload.dtype.bits)
    item: Any = flat.dtype.itemsize
    # The constructor checks that all elements lie within the buffer.
    array: Array = np.ndarray(
        payload.shape, flat.dtype, flat.view(np.uint8).data, 0, tuple(item * s for s in strides)
    )
    return array
