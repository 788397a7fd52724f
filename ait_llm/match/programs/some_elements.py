"""Reading some elements of each row of a large weight, a part of the file at a time."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import FORMAT_ND
from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.formats.elements import Array, decode
from ait_llm.formats.opening import open_descriptor
from ait_llm.formats.payload import Payload

_PART = 1 << 20  # bytes that are read at a time, into memory that stays in the caches


def some_elements(
    tensor: Tensor, rows: NDArray[np.int64] | None, places: NDArray[np.int64]
) -> Array | None:
    """Elements of a matrix, float32 ``[rows, places]``.

    Args:
        tensor: stored.
        rows: which; None for all.
        places: columns.

    Returns:
        None where the elements do not lie row by row in a file, so that all of it has to be loaded.

    Raises:
        FormatError: the file is damaged.
    """
    payload = tensor.payload()
    if payload is None or not _is_plain(payload):
        return None
    if rows is not None and rows.size and not 0 <= rows.min() <= rows.max() < payload.shape[0]:
        return None
    descriptor, _ = open_descriptor(payload.path)
    try:
        return _read(descriptor, payload, rows, places)
    finally:
        os.close(descriptor)


def _is_plain(payload: Payload) -> bool:
    dtype = payload.dtype
    is_whole = dtype.numpy_type is not None and dtype.bits >= 8 and dtype.is_floating
    in_order = payload.format == FORMAT_ND and payload.strides is None and len(payload.shape) == 2
    return is_whole and in_order and payload.length == dtype.byte_count(payload.elements) > 0


def _read(
    descriptor: int, payload: Payload, rows: NDArray[np.int64] | None, places: NDArray[np.int64]
) -> Array:
    count, width = payload.shape[0] if rows is None else len(rows), payload.shape[1]
    size = payload.dtype.byte_count(width)
    found = np.empty((count, len(places)), np.float32)
    step = min(count, max(1, _PART // size))
    memory = memoryview(bytearray(step * size))
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)  # neighbours, taken at once
    for start in range(0, count, step):
        stop = min(start + step, count)
        length = (stop - start) * size
        if rows is None:
            _fill(descriptor, payload, memory[:length], start * size)
        else:
            for place, row in enumerate(rows[start:stop].tolist()):
                part = memory[place * size : (place + 1) * size]
                _fill(descriptor, payload, part, row * size)
        raw = np.frombuffer(memory, np.uint8, length)
        elements = decode(raw, payload.dtype, (stop - start) * width).reshape(-1, width)
        at = 0
        for run in runs:
            found[start:stop, at : at + len(run)] = elements[:, run[0] : run[0] + len(run)]
            at += len(run)
    return found


def _fill(descriptor: int, payload: Payload, memory: memoryview, start: int) -> None:
    if os.preadv(descriptor, [memory], payload.offset + start) < len(memory):
        raise FormatError(payload.path, "became shorter while it was read")
