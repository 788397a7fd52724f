"""The values in dump files of the graph engine.

Large ones whose type NumPy has are views of the mapped file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import FORMAT_ND
from ait_llm.errors import FormatError
from ait_llm.formats.elements import Array, decode
from ait_llm.formats.ge_file import GeFile, GeTensor, read_ge
from ait_llm.formats.ge_layout import to_logical
from ait_llm.formats.ge_types import GE_PLAIN_FORMATS
from ait_llm.formats.mapped import mapped
from ait_llm.formats.opening import open_descriptor
from ait_llm.formats.payload import Payload

_MAP_FROM = 1 << 16  # bytes; below, a copy costs less than a mapping


def ge_payload(file: GeFile, tensor: GeTensor) -> Payload:
    """Where the values of a tensor lie.

    Raises:
        FormatError: the file does not hold them, or they cannot be represented.
    """
    if tensor.problem is not None or tensor.offset is None:
        raise FormatError(file.path, f"{tensor.name} {tensor.problem}")
    one, dtype = tensor.described, tensor.dtype
    length = dtype.byte_count(prod(one.shape))  # a buffer may be larger than its tensor
    if one.format in GE_PLAIN_FORMATS:
        return Payload(file.path, tensor.offset, length, dtype, tensor.shape, FORMAT_ND)
    return Payload(
        file.path,
        tensor.offset,
        length,
        dtype,
        one.shape,
        one.format,
        logical=one.original_shape or (),
        groups=one.sub_format,
        origin=one.original.format if one.original is not None else None,
    )


def ge_payloads(path: Path | str) -> Mapping[str, Payload]:
    """Where the values of all tensors lie, by name; those without values are left out.

    Raises:
        FormatError: as :func:`read_ge`.
    """
    file = read_ge(path)
    return {
        tensor.name: ge_payload(file, tensor) for tensor in file.tensors if tensor.problem is None
    }


def ge_raw(file: GeFile, tensor: GeTensor) -> NDArray[np.uint8]:
    """All bytes that belong to a tensor, whatever its type; large ones are mapped.

    Raises:
        FormatError: the file does not hold them.
    """
    if tensor.offset is None:
        raise FormatError(file.path, f"{tensor.name} {tensor.problem}")
    one = tensor.described
    embedded = one.embedded
    size = one.size if embedded is None else embedded[1] - embedded[0]
    return _mapped(file.path, tensor.offset, size)


def ge_stored(file: GeFile, tensor: GeTensor) -> Array:
    """The values as stored, in the stored dims; a mapped view where the type allows.

    Raises:
        FormatError: the file does not hold them, or they cannot be represented.
    """
    payload = ge_payload(file, tensor)
    raw = _mapped(payload.path, payload.offset, payload.length)
    try:
        flat = decode(raw, payload.dtype, payload.elements)
        return flat.reshape(payload.shape)
    except ValueError as error:
        raise FormatError(file.path, f"{tensor.name}: {error}") from None


def ge_values(file: GeFile, tensor: GeTensor) -> Array:
    """The values in row-major order of the logical dims, private layouts restored.

    Raises:
        FormatError: as :func:`ge_stored`, or the layout is not converted.
    """
    payload = ge_payload(file, tensor)
    stored = ge_stored(file, tensor)
    try:
        return payload_to_logical(stored.reshape(-1), payload)
    except ValueError as error:
        raise FormatError(file.path, f"{tensor.name} {error}") from None


def payload_to_logical(flat: Array, payload: Payload) -> Array:
    """Restore the layout of a payload that records its logical dims.

    Args:
        flat: the stored elements.
        payload: where they came from.

    Raises:
        ValueError: the layout is not converted.
    """
    return to_logical(
        flat,
        payload.shape,
        payload.format,
        payload.logical or None,
        groups=payload.groups,
        origin=payload.origin,
    )


def _mapped(path: Path | str, offset: int, length: int) -> NDArray[np.uint8]:
    descriptor, status = open_descriptor(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if status.st_size < offset + length:
            raise FormatError(path, "became shorter while it was read")
        if length < _MAP_FROM:
            data = os.pread(descriptor, length, offset)
            if len(data) < length:
                raise FormatError(path, "became shorter while it was read")
            return np.frombuffer(data, np.uint8)
        return mapped(file, offset, length, path)
