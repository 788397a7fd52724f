"""Dump files of the graph engine: one operator, all its inputs and outputs.

A file is the length of its header (uint64), the header, and the values of all inputs, then of all
outputs, one behind the other. Nothing but the header is read here, see ``ge_values``. Source:
``dump_task.cpp`` in hicann/runtime.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path

from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.formats.elements import is_decoded
from ait_llm.formats.ge_header import Described, Description, parse_description
from ait_llm.formats.ge_layout import known_dims
from ait_llm.formats.ge_types import ge_type, ge_type_name
from ait_llm.formats.mapped import address_of, guarded
from ait_llm.formats.opening import not_here, open_descriptor

_PREFIX = 8  # bytes of the header's length
_FIRST_READ = 4096  # holds the header of nearly every operator
_MAP_HEADER_FROM = 1 << 20
_MAX_HEADER_BYTES = 1 << 31
_OTHER_PRODUCT = b"\x5a\x5a\x5a\x5a"
_TAGS = frozenset(bytes([number << 3 | 2]) for number in range(1, 10)) | {b"\x10"}
# The version, then any other field.
_BEGINS = re.compile(rb"\x0a[\x01-\x0f][0-9][0-9.]*[\x10\x1a\x22\x2a\x32\x3a\x42\x4a]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GeTensor:
    """A tensor in a dump file.

    Attributes:
        described: what the header says.
        offset: of its first byte in the file, None if the file does not hold it.
        problem: why its values cannot be had, as a clause; None if they can.
    """

    described: Described
    offset: int | None
    problem: str | None = None

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``."""
        return f"{self.described.role}tensor{self.described.index}"

    @property
    def dtype(self) -> DType:
        """Logical element type; UNDEFINED for one without values."""
        return ge_type(self.described.type)

    @property
    def format(self) -> int:
        """Layout of the stored elements."""
        return self.described.format

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical dims where they are recorded and fit the layout, else the stored ones."""
        one = self.described
        return known_dims(one.shape, one.format, one.original_shape)


@dataclass(frozen=True, slots=True)
class GeFile:
    """A dump file without its values.

    Attributes:
        path: the file.
        description: the header.
        tensors: inputs, then outputs.
        size: of the whole file in bytes.
        problem: what is wrong with the file as a whole, None if it is complete.
    """

    path: Path | str
    description: Description
    tensors: tuple[GeTensor, ...]
    size: int
    problem: str | None = None

    def __getitem__(self, name: str) -> GeTensor:
        """The tensor called ``intensor0`` or ``outtensor0``.

        Raises:
            KeyError: no such tensor.
        """
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)


def looks_like_ge(path: Path | str) -> bool:
    """True if the first bytes are those of a dump file of the graph engine.

    Raises:
        FormatError: the file cannot be opened.
    """
    if (elsewhere := not_here(path)) is not None:
        first, size = elsewhere.pread(_PREFIX + 32, 0), elsewhere.size
    else:
        descriptor, status = open_descriptor(path)
        try:
            first, size = os.pread(descriptor, _PREFIX + 32, 0), status.st_size
        finally:
            os.close(descriptor)
    length = int.from_bytes(first[:_PREFIX], "little")
    if length > size:
        return False
    if _BEGINS.match(first[: _PREFIX + length], _PREFIX):
        return True
    if first[_PREFIX : _PREFIX + 1] not in _TAGS:
        return False
    try:  # the version may be missing
        return bool(read_ge(path).tensors)
    except FormatError:
        return False


def read_ge(path: Path | str) -> GeFile:
    """Read the header of a dump file.

    A file that is cut off behind its header is read; the tensors it does not hold say so.

    Raises:
        FormatError: it is not such a file, or the header is damaged or cut off.
    """
    if (elsewhere := not_here(path)) is not None:
        return _read(path, elsewhere.pread, elsewhere.size, None)
    descriptor, status = open_descriptor(path)
    try:
        return _read(path, partial(os.pread, descriptor), status.st_size, descriptor)
    finally:
        os.close(descriptor)


def _read(
    path: Path | str, pread: Callable[[int, int], bytes], size: int, descriptor: int | None
) -> GeFile:
    """Read the header with a function that takes a length and an offset.

    Args:
        path: the file.
        pread: reads from it.
        size: in bytes.
        descriptor: of the file where it can be mapped.
    """
    try:
        first = pread(_FIRST_READ, 0)
        if len(first) < _PREFIX:
            raise FormatError(path, f"is cut off, it has only {len(first)} bytes")
        length = int.from_bytes(first[:_PREFIX], "little")
        if first[_PREFIX : _PREFIX + 4] == _OTHER_PRODUCT:
            raise FormatError(path, "is a dump of another product line, which is not read")
        if length > _MAX_HEADER_BYTES:
            raise FormatError(path, "is not a dump file of the graph engine")
        end = _PREFIX + length
        if end > size:
            raise FormatError(path, f"header of {length} bytes is cut off")
        if end <= len(first):
            description = parse_description(first, _PREFIX, end)
        elif length < _MAP_HEADER_FROM or descriptor is None:
            rest = pread(end - len(first), len(first))
            if len(first) + len(rest) < end:
                raise FormatError(path, "became shorter while it was read")
            description = parse_description(first + rest, _PREFIX, end)
        else:
            with (
                mmap(descriptor, end, access=ACCESS_READ) as mapped,
                guarded({address_of(mapped): end}, path),
            ):
                description = parse_description(mapped, _PREFIX, end)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"header is damaged: {error}") from None
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
    tensors, problem = _place(description, end, size)
    return GeFile(path, description, tensors, size, problem)


def _place(
    description: Description, start: int, size: int
) -> tuple[tuple[GeTensor, ...], str | None]:
    """Where each tensor lies, and what is missing."""
    described = (*description.inputs, *description.outputs)
    stored = [0 if one.embedded is not None else one.size for one in described]
    absent: set[int] = set()
    needed = start + sum(stored) + description.trailing
    if needed > size and any(one.address for one in described):
        # One writer leaves out the values of tensors without an address, and keeps their size.
        absent = {place for place, one in enumerate(described) if not one.address and stored[place]}
        needed -= sum(stored[place] for place in absent)
    tensors = []
    offset = start
    for place, one in enumerate(described):
        if one.embedded is not None:
            tensors.append(_checked(one, one.embedded[0], one.embedded[1] - one.embedded[0]))
        elif place in absent:
            tensors.append(GeTensor(one, None, "has no values: it had no address on the device"))
        elif offset + one.size > size:
            present = max(0, size - offset)
            problem = f"is cut off: {present} of its {one.size} bytes are in the file"
            tensors.append(GeTensor(one, None, problem))
            offset += one.size
        else:
            tensors.append(_checked(one, offset, one.size))
            offset += one.size
    missing = needed - size
    return tuple(tensors), f"is cut off, {missing} bytes are missing" if missing > 0 else None


def _checked(one: Described, offset: int, size: int) -> GeTensor:
    """A tensor whose bytes are there, if they are as many as its dims need."""
    dtype = ge_type(one.type)
    if any(dim < 0 for dim in one.shape):
        problem: str | None = f"has the unknown dims {list(one.shape)}"
    elif not is_decoded(dtype):
        problem = f"values of type {ge_type_name(one.type)} cannot be represented"
    elif (needed := dtype.byte_count(prod(one.shape))) > size:
        problem = (
            f"has no values: its dims {list(one.shape)} need {needed} bytes, its size is 0"
            if size == 0
            else f"dims {list(one.shape)} need {needed} bytes, it has {size}"
        )
    else:
        problem = None
    return GeTensor(one, offset, problem)
