"""A few bytes that tensors of equal numbers share; enough to know a value again within a dump."""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from math import prod

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array, decode
from ait_llm.formats.opening import open_unbuffered
from ait_llm.formats.payload import Payload

# Of larger tensors, stretches of neighbours are read: few pages, and two activations that agree in
# so many places, in type and in number of elements are the same.
_WHOLE = 1 << 14
_STRETCHES, _LENGTH = 32, 64
_WIDE = {"b": np.bool_, "i": np.int64, "f": np.float64, "c": np.complex128}  # by kind


def digest(tensor: Tensor) -> bytes | None:
    """A digest of a tensor's numbers, whatever their shape and element type.

    Float16 that was widened to float32 is still the same value. A capture without values has the
    digest of its recorded statistics.

    Returns:
        None where equal values prove nothing: no values, all alike, or mostly not finite, as all
        tensors are after an overflow.
    """
    try:
        if not tensor.has_data:
            return _of_statistics(tensor)
        flat, size = _elements(tensor)
    except (AitError, OSError, ValueError):
        return None  # who compares the tensor tells what is wrong with it
    kind = {"u": "i"}.get(flat.dtype.kind, flat.dtype.kind)
    kind = kind if kind in _WIDE else "f"
    flat = flat.astype(_WIDE[kind], copy=False)
    if kind not in "ib":
        finite = np.isfinite(flat)
        count = np.count_nonzero(finite)
        if 2 * count < flat.size:
            return None
        flat = flat if count == flat.size else np.where(finite, flat, np.inf)
    if flat.size < 2 or np.count_nonzero(flat == flat[0]) == flat.size:
        return None
    return blake2b(flat.tobytes(), digest_size=16, key=f"{kind} {size}".encode()).digest()


def recorded_digest(tensor: Tensor) -> bytes | None:
    """The digest of the statistics that a capture recorded beside a tensor's values.

    It is that of the same tensor in a capture without values, so one knows the other again where a
    dump holds the values of some tensors only.
    """
    try:
        if tensor.recorded_statistics is None:
            return None
        return _of_statistics(tensor)
    except (AitError, OSError, ValueError):
        return None


def _of_statistics(tensor: Tensor) -> bytes | None:
    statistics = tensor.statistics
    if statistics is None:
        return None
    text = f"{tensor.dtype.label} {prod(tensor.shape)} {statistics}"
    return blake2b(text.encode(), digest_size=16).digest()


def _elements(tensor: Tensor) -> tuple[Array, int]:
    """All elements of a small tensor, stretches of a large one; and how many it has."""
    payload = tensor.payload()
    if payload is not None and payload.strides is None and payload.dtype.bits % 8 == 0:
        return _from_file(payload), payload.elements
    flat = tensor.numpy().reshape(-1)
    if flat.size <= _WHOLE:
        return flat, flat.size
    return np.concatenate(
        [flat[start : start + _LENGTH] for start in _starts(flat.size)]
    ), flat.size


def _from_file(payload: Payload) -> Array:
    item, size = payload.dtype.bits // 8, payload.elements
    if payload.kept is not None and size <= _WHOLE:
        return decode(np.frombuffer(payload.kept[0], np.uint8), payload.dtype, size)
    stretches = [(0, size)] if size <= _WHOLE else [(start, _LENGTH) for start in _starts(size)]
    with open_unbuffered(payload.path) as file:
        raw = b"".join(
            os.pread(file.fileno(), count * item, payload.offset + start * item)
            for start, count in stretches
        )
    return decode(np.frombuffer(raw, np.uint8), payload.dtype, sum(n for _, n in stretches))


@cache  # a run has few sizes
def _starts(size: int) -> list[int]:
    return [int(start) for start in np.linspace(0, size - _LENGTH, _STRETCHES)]
