"""Two arrays of any layout as pairs of contiguous pieces in row-major order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ait_llm.formats.elements import Array


def is_direct(array: Array) -> bool:
    """True if the array's memory holds its elements in row-major order and native byte order."""
    return array.flags.c_contiguous and array.dtype.isnative


def pieces(
    golden: Array, mine: Array, start: int, stop: int, size: int
) -> Iterator[tuple[Array, Array]]:
    """Elements ``start`` to ``stop`` of the flattened arrays, at most ``size`` at a time.

    Arrays that are contiguous are not copied, others one piece at a time.

    Args:
        golden, mine: arrays of the same shape.
        start, stop: flat indices.
        size: largest number of elements of a piece.

    Yields:
        1-D contiguous pieces of both sides in native byte order.
    """
    sides = [_pieces(array, start, stop, size) for array in (golden, mine)]
    yield from zip(*sides, strict=True)


def _pieces(array: Array, start: int, stop: int, size: int) -> Iterator[Array]:
    native = array.dtype.newbyteorder("=")
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for place in range(start, stop, size):
            yield flat[place : min(place + size, stop)].astype(native, copy=False)
        return
    # Elements of a flat index range of a strided array; NumPy finds them without a full copy.
    for place in range(start, stop, size):
        yield array.flat[place : min(place + size, stop)].astype(native, copy=False)


def real_views(golden: Array, mine: Array) -> tuple[Array, Array]:
    """Pieces of complex numbers as twice as many real ones; a real side gets zero parts."""
    if "c" not in (golden.dtype.kind, mine.dtype.kind):
        return golden, mine
    return _parts(golden), _parts(mine)


def _parts(values: Array) -> Array:
    if values.dtype.kind == "c":
        return values.view(np.float32 if values.dtype.itemsize == 8 else np.float64)
    parts = np.zeros(2 * values.size, np.float64)
    parts[::2] = values.astype(np.float64)
    return parts
