"""Writing ``.pth`` files faster than ``torch.save``, byte-compatible with ``torch.load``.

``torch.save`` spends most of its time on a zip writer that goes through Python for every record.
A dense tensor's file is always the same few records, so the bytes around its data are made once
for each dtype and shape and the whole file becomes one gathered write. The result is an
uncompressed zip archive with correct checksums; ``torch.load(weights_only=True)`` reads it.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import pickle
import struct
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm.core.file_orders import FileOrder
from ait_llm.core.kernels import NativeKernels, Piece, crc32

if TYPE_CHECKING:
    import torch

# torch.load maps storages whose data start on this boundary.
_ALIGNMENT = 64
# How often a file is begun anew whose descriptor the program closed meanwhile.
_TURNS = 8
# Sizes in a plain zip record are 32-bit.
MAX_PLAIN_BYTES = 0xFFFFFFFF - (1 << 20)


class _Storage:
    """Stands for the storage record in the pickle: the pickler asks for its persistent id."""

    def __init__(self, record: tuple[Any, ...]) -> None:
        self.record = record


class _Rebuild:
    """Pickles as a call of torch's own rebuild function."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


class _TensorPickler(pickle.Pickler):
    def persistent_id(self, value: object) -> tuple[Any, ...] | None:
        return value.record if isinstance(value, _Storage) else None


def _pickle_tensor(dtype: torch.dtype, shape: Sequence[int]) -> bytes:
    """The ``data.pkl`` record of a contiguous CPU tensor that starts at offset 0."""
    import torch

    elements = 1
    strides = []
    for size in reversed(shape):
        strides.append(elements)
        elements *= max(size, 1)
    count = 0 if 0 in shape else elements
    layout: tuple[Any, ...] = (0, tuple(shape), tuple(reversed(strides)), False, OrderedDict())
    legacy = _legacy_storage(dtype)
    buffer = io.BytesIO()
    if legacy is not None:
        storage = _Storage(("storage", legacy, "0", "cpu", count))
        arguments: tuple[Any, ...] = (storage, *layout)
    else:
        storage = _Storage(
            ("storage", torch.storage.UntypedStorage, "0", "cpu", count * dtype.itemsize)
        )
        arguments = (storage, *layout, dtype)
    _TensorPickler(buffer, protocol=2).dump(_Rebuild(torch._utils._rebuild_tensor_v2, arguments))
    # The third one takes the type; pickle writes no name that this PyTorch lacks (before 2.2).
    name = b"_rebuild_tensor_v2" if legacy is not None else b"_rebuild_tensor_v3"
    return buffer.getvalue().replace(b"_rebuild_tensor_v2", name, 1)


def _legacy_storage(dtype: torch.dtype) -> type | None:
    """The typed storage class that names ``dtype`` in a file, or None for newer dtypes."""
    import torch

    names = {
        torch.float32: "FloatStorage",
        torch.float64: "DoubleStorage",
        torch.float16: "HalfStorage",
        torch.bfloat16: "BFloat16Storage",
        torch.int64: "LongStorage",
        torch.int32: "IntStorage",
        torch.int16: "ShortStorage",
        torch.int8: "CharStorage",
        torch.uint8: "ByteStorage",
        torch.bool: "BoolStorage",
        torch.complex64: "ComplexFloatStorage",
        torch.complex128: "ComplexDoubleStorage",
    }
    name = names.get(dtype)
    return getattr(torch, name) if name is not None else None


@dataclass(frozen=True, slots=True)
class PthTemplate:
    """Everything in the file but the tensor's data, with room for their checksum.

    Attributes:
        head: what is ahead of the data.
        tail: what follows them.
        data_size: bytes of data.
        head_checksum: where in ``head`` the data's CRC-32 goes.
        tail_checksum: where in ``tail`` it goes once more.
        head_piece, tail_piece: the same for native code.
    """

    head: bytes
    tail: bytes
    data_size: int
    head_checksum: int
    tail_checksum: int
    head_piece: Piece
    tail_piece: Piece

    def parts(self, data: memoryview) -> list[bytes | memoryview]:
        """The file as buffers to write in order.

        Args:
            data: the tensor's bytes; must have ``data_size`` bytes.
        """
        checksum = struct.pack("<I", crc32(data))
        return [
            *_completed(self.head, self.head_checksum, checksum),
            data,
            *_completed(self.tail, self.tail_checksum, checksum),
        ]


def _completed(piece: bytes, position: int, checksum: bytes) -> list[bytes]:
    return [piece[:position], checksum, piece[position + len(checksum) :]]


@functools.lru_cache(maxsize=4096)
def pth_template(dtype: torch.dtype, shape: tuple[int, ...]) -> PthTemplate:
    """The template for contiguous CPU tensors of that dtype and shape."""
    elements = 1
    for size in shape:
        elements *= size
    data_size = elements * dtype.itemsize
    if data_size > MAX_PLAIN_BYTES:
        raise ValueError(f"{data_size} bytes do not fit a plain zip record")
    records = [
        (b"tensor/data.pkl", _pickle_tensor(dtype, shape)),
        (b"tensor/.format_version", b"1"),
        (b"tensor/.storage_alignment", str(_ALIGNMENT).encode()),
        (b"tensor/byteorder", sys.byteorder.encode()),
        (b"tensor/version", b"3\n"),
    ]
    body = bytearray()
    directory = bytearray()
    for name, content in records:
        crc = struct.pack("<I", zlib.crc32(content))
        sizes = struct.pack("<II", len(content), len(content))
        directory += _entry_head() + crc + sizes + _entry_tail(len(name), len(body)) + name
        body += _local_head() + crc + sizes + struct.pack("<HH", len(name), 0) + name + content
    data_header = len(body)
    name = b"tensor/data/0"
    fixed = data_header + 30 + len(name)
    # An extra field of at least its own 4-byte header pads the data to the boundary.
    padding = -fixed % _ALIGNMENT
    padding += _ALIGNMENT if 0 < padding < 4 else 0
    extra = struct.pack("<2sH", b"FB", padding - 4) + b"Z" * (padding - 4) if padding else b""
    sizes = struct.pack("<II", data_size, data_size)
    room = bytes(4)
    head = bytes(body) + _local_head() + room + sizes
    head += struct.pack("<HH", len(name), len(extra)) + name + extra
    directory += _entry_head()
    tail_checksum = len(directory)
    directory += room + sizes + _entry_tail(len(name), data_header) + name
    start = len(head) + data_size
    count = len(records) + 1
    tail = bytes(directory) + struct.pack(
        "<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), start, 0
    )
    head_checksum = data_header + len(_local_head())
    return PthTemplate(
        head=head,
        tail=tail,
        data_size=data_size,
        head_checksum=head_checksum,
        tail_checksum=tail_checksum,
        head_piece=Piece(head, len(head), head_checksum),
        tail_piece=Piece(tail, len(tail), tail_checksum),
    )


def _local_head() -> bytes:
    """A local file header up to the checksum: stored, no date, UTF-8 names."""
    return struct.pack("<4sHHHHH", b"PK\3\4", 0, 0x0800, 0, 0, 0)


def _entry_head() -> bytes:
    """A central directory entry up to the checksum."""
    return struct.pack("<4sHHHHHH", b"PK\1\2", 0, 0, 0x0800, 0, 0, 0)


def _entry_tail(name_length: int, offset: int) -> bytes:
    """A central directory entry from the lengths to the record's offset."""
    return struct.pack("<HHHHHII", name_length, 0, 0, 0, 0, 0, offset)


def write_pth_at(kernels: NativeKernels, path: str, template: PthTemplate, address: int) -> int:
    """:func:`write_pth` in one native call, which leaves the interpreter to other threads.

    Args:
        kernels: the native library.
        path: the file.
        template: from :func:`pth_template`.
        address: of the tensor's bytes, contiguous.

    Raises:
        OSError: the file cannot be created or written.
    """
    name = os.fsencode(path)
    head, tail = template.head_piece, template.tail_piece
    kernels.write_file(name + b".part", name, head, address, template.data_size, tail)
    return len(template.head) + template.data_size + len(template.tail)


def pth_order(path: str, template: PthTemplate, address: int) -> FileOrder:
    """The same for :func:`~ait_llm.core.file_orders.write_files`."""
    head, tail = template.head_piece, template.tail_piece
    return FileOrder(os.fsencode(path), head, address, template.data_size, tail)


def write_pth(path: Path | str, template: PthTemplate, data: memoryview) -> int:
    """Write one file in place of any earlier one and return its size in bytes.

    Args:
        path: the file.
        template: from :func:`pth_template`.
        data: the tensor's bytes, contiguous.

    Raises:
        ValueError: ``data`` has not the size that the template says.
        OSError: the file cannot be created or written.
    """
    if data.nbytes != template.data_size:
        raise ValueError(f"{data.nbytes} bytes of data where {template.data_size} were expected")
    temporary = f"{path}.part"
    parts = template.parts(data)
    try:
        for turn in range(_TURNS):
            written = _written(temporary, parts, is_last=turn == _TURNS - 1)
            if written is not None:
                break
        assert written is not None
        os.replace(temporary, path)  # noqa: PTH105 - a Path costs more than the system call
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return written


def _written(path: str, parts: Sequence[bytes | memoryview], *, is_last: bool) -> int | None:
    """Bytes that were written; None where the program took the descriptor away, as daemons do.

    Its number may stand for a file of the program by then, which is neither written nor closed.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        written = _write_all(descriptor, parts)
    except OSError as error:
        if _is_file_of(descriptor, path):
            os.close(descriptor)
            raise
        if is_last or error.errno != errno.EBADF:
            raise
        return None
    if _is_file_of(descriptor, path):
        os.close(descriptor)
        return written
    if is_last:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), path)
    return None


def _is_file_of(descriptor: int, path: str) -> bool:
    try:
        opened, named = os.fstat(descriptor), os.lstat(path)
    except OSError:
        return False
    return os.path.samestat(opened, named)


def _write_all(descriptor: int, parts: Sequence[bytes | memoryview]) -> int:
    """Write all parts, in more than one call where the system takes only some (2 GiB at a time)."""
    rest = [memoryview(part) for part in parts if len(part)]
    total = 0
    while rest:
        written = os.writev(descriptor, rest)
        total += written
        while rest and written >= rest[0].nbytes:
            written -= rest.pop(0).nbytes
        if written:
            rest[0] = rest[0][written:]
    return total
