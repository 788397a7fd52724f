"""ATB tensor files: read the header alone or the values, and write them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ait_llm.core import TensorDesc
from ait_llm.core.new_files import temporary_beside
from ait_llm.errors import FormatError
from ait_llm.formats.atb_header import MAGIC, MAX_HEADER_BYTES, AtbHeader, parse_header
from ait_llm.formats.elements import Array, decode, encode, stored_byte_counts
from ait_llm.formats.layout import stored_shape
from ait_llm.formats.mapped import mapped as from_file
from ait_llm.formats.names import PLAIN_FORMATS
from ait_llm.formats.opening import (
    contained,
    contained_file,
    not_here,
    open_descriptor,
    open_unbuffered,
)
from ait_llm.formats.payload import Payload

SUFFIX = ".bin"
_USUAL_HEADER_BYTES = 1024  # a header has about 100 bytes, the rest would be data
_MAX_ALIASES = 8  # a file that refers to a file that refers to …
# Mapping reads a large tensor several times faster than read() where files are virtualised, and
# never needs memory for it; for small ones the page faults cost more than the copy.
_MAP_FROM = 1024 * 1024
Locate = Callable[[str], Path | None]
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


def read_header(path: Path | str) -> AtbHeader:
    """Read what a tensor file says about its tensor, without its data.

    Raises:
        FormatError: the file is missing, is not a tensor file, or contradicts its own header.
    """
    if (elsewhere := not_here(path)) is not None:
        return parse_header(path, elsewhere.pread(MAX_HEADER_BYTES, 0), elsewhere.size)
    descriptor, status = open_descriptor(path)
    try:
        head = os.read(descriptor, _USUAL_HEADER_BYTES)
        if len(head) == _USUAL_HEADER_BYTES and b"\n$End=" not in head:
            head += os.read(descriptor, MAX_HEADER_BYTES - len(head))
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    return parse_header(path, head, status.st_size)


def read_tensor(path: Path | str, *, root: Path | None = None, mmap: bool | None = None) -> Array:
    """Read the values of a tensor as stored, in its storage dims.

    Where the header refers to another file for the bytes (``data=``), that file is read.

    Args:
        path: the tensor file.
        root: folder that no reference may leave; the folder of ``path`` when None.
        mmap: True maps the file, so that values are read when they are used; the file must not
            be changed meanwhile. False reads them. None maps tensors of a mebibyte and more.

    Returns:
        Array of ``desc.shape`` (or its padded FRACTAL_NZ form, see ``layout.stored_shape``) with
        the NumPy or ml_dtypes type of the tensor; HiFloat8 widened to float32, complex32 to
        complex64. Read-only unless ``mmap`` is False.

    Raises:
        FormatError: as :func:`read_header`; also when no data is stored, a reference is broken,
            leads out of ``root`` or to another kind of tensor, or the type cannot be represented.
    """
    path = path if isinstance(path, Path) else Path(path)
    holder, header = resolve_data(path, root=root)
    return read_values(holder, header, mmap=mmap)


def resolve_data(
    path: Path, *, root: Path | None = None, locate: Locate | None = None
) -> tuple[Path, AtbHeader]:
    """Follow ``data=`` references to the file that holds the bytes of a tensor.

    Args:
        path: the tensor file.
        root: folder that no reference may leave; the folder of ``path`` when None.
        locate: finds the file for references that are not file names (msprobe writes
            ``0_1_outtensor0.bin``); it returns None for what it does not know.

    Returns:
        That file and its header, whose desc is the one of ``path``.

    Raises:
        FormatError: see :func:`read_tensor`.
    """
    root = path.parent if root is None else root
    header = read_header(contained_file(path, root))
    if header.has_data:
        return path, header
    wanted, holder = header.desc, path
    seen = {holder.resolve()}
    while not header.has_data:
        if header.alias is None:
            raise FormatError(
                path,
                "is a description without data",
                "Dump again without -sd (or --type stats) to get the values",
            )
        located = locate(header.alias) if locate is not None else None
        target = contained(located or holder.parent / header.alias, root, named_in=holder)
        if target.resolve() in seen or len(seen) > _MAX_ALIASES:
            raise FormatError(path, f"refers to {header.alias!r}, which leads back to itself")
        seen.add(target.resolve())
        holder, header = target, read_header(target)
        if (header.desc.dtype, header.desc.elements) != (wanted.dtype, wanted.elements):
            raise FormatError(
                path,
                f"refers to {target.name!r}, which holds {header.desc.elements} elements of "
                f"{header.desc.dtype.label}, not {wanted.elements} of {wanted.dtype.label}",
            )
    same = AtbHeader(wanted, header.offset, header.length, header.attributes)
    return holder, same


def payload_of(path: Path | str, header: AtbHeader) -> Payload:
    """Where the values lie that ``header``, which has data, describes in the file it belongs to."""
    desc = header.desc
    return Payload(path, header.offset, header.length, desc.dtype, desc.shape, desc.format)


def looks_like_atb(path: Path) -> bool:
    """True if the file begins like a tensor file.

    Raises:
        FormatError: it cannot be opened.
    """
    if (elsewhere := not_here(path)) is not None:
        return elsewhere.pread(len(MAGIC), 0) == MAGIC
    with open_unbuffered(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def read_values(path: Path, header: AtbHeader, *, mmap: bool | None = None) -> Array:
    """Read the values that ``header`` describes from the file it belongs to.

    Args and returns as :func:`read_tensor`.

    Raises:
        FormatError: the type cannot be represented, or the file changed meanwhile.
    """
    desc = header.desc
    if desc.dtype.bits == 0:
        raise FormatError(path, f"holds {desc.dtype.label} elements, which have no numeric value")
    mapped = header.length >= _MAP_FROM if mmap is None else mmap
    try:
        with open_unbuffered(path) as file:
            raw = _bytes_of(path, file, header, mapped)
        elements = _stored_elements(desc, header.length)
        shape = stored_shape(desc.shape, desc.format, desc.dtype, elements)
        array = decode(raw, desc.dtype, elements).reshape(shape)
    except ValueError as error:
        raise FormatError(path, str(error)) from None
    except MemoryError:
        raise FormatError(
            path,
            f"its {header.length} bytes of {desc.dtype.label} do not fit into the free memory",
            "Read it with mmap=True, or on a machine with more memory",
        ) from None
    if mmap is not False:
        array.flags.writeable = False
    return array


def write_tensor(
    path: Path | str,
    array: Array | None,
    desc: TensorDesc,
    attributes: Mapping[str, str] = _NO_ATTRIBUTES,
) -> None:
    """Write a tensor file, replacing an existing one in one step.

    Args:
        path: the file; its folder must exist. Mode 0640.
        array: values in row-major order of the storage dims, see ``elements.encode``; None writes
            a description without data.
        desc: element type, format and dims for the header.
        attributes: further header lines, such as statistics or ``data``.

    Raises:
        FormatError: array and desc disagree, an attribute cannot stand in a header line, or the
            file cannot be written.
    """
    path = path if isinstance(path, Path) else Path(path)
    try:
        data = b"" if array is None else encode(array, desc.dtype)
    except ValueError as error:
        raise FormatError(path, f"cannot be written: {error}") from None
    if array is not None and desc.format in PLAIN_FORMATS and array.size != desc.elements:
        raise FormatError(
            path, f"cannot be written: {array.size} elements for dims {list(desc.shape)}"
        )
    lines = [
        "$Version=1.0",
        f"$Object.Count={0 if array is None else 1}",
        f"$Object.Length={len(data)}",
        f"format={desc.format}",
        f"dtype={desc.dtype.code}",
        f"dims={','.join(map(str, desc.shape))}",
    ]
    for name, value in attributes.items():
        if not name or name.startswith("$") or "=" in name or "\n" in name + value:
            raise FormatError(path, f"cannot be written: attribute {name!r} breaks the header")
        lines.append(f"{name}={value}")
    if array is not None:
        lines.append(f"$Object.data=0,{len(data)}")
    lines.append("$End=1")
    _replace(path, "".join(f"{line}\n" for line in lines).encode(), data)


def _bytes_of(path: Path, file: FileIO, header: AtbHeader, mapped: bool) -> Array:
    """The stored bytes as a flat uint8 array."""
    if os.fstat(file.fileno()).st_size < header.offset + header.length:
        raise FormatError(path, "became shorter while it was read")
    if header.length == 0:
        return np.empty(0, dtype=np.uint8)
    if mapped:
        return np.asarray(from_file(file, header.offset, header.length, path))
    raw = np.empty(header.length, dtype=np.uint8)
    file.seek(header.offset)
    view, filled = memoryview(raw.data), 0
    while filled < header.length:
        count = file.readinto(view[filled:])
        if not count:
            raise FormatError(path, "became shorter while it was read")
        filled += count
    return raw


def _stored_elements(desc: TensorDesc, length: int) -> int:
    if length in stored_byte_counts(desc.dtype, desc.elements):
        return desc.elements
    return length * 8 // desc.dtype.bits  # a padded private format


def _replace(path: Path, *parts: bytes) -> None:
    temporary: Path | None = None
    try:
        descriptor, temporary = temporary_beside(path)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise FormatError(path, f"cannot be written: {error.strerror}") from None
