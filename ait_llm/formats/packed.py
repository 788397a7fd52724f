"""Quantised weights as the real numbers that they stand for.

Checkpoints and engines store the same few things in their own ways: integers of 2, 4 or 8 bits,
often several in one 32-bit integer, or floats of 8 or 4 bits, with a scale for each tensor, row,
group of neighbours in a row, or block. The functions take what is stored and give float32.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ait_llm.formats.elements import Array

Floats = NDArray[np.float32]

AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which of the eight nibbles of an integer, from the lowest on, each column of AutoAWQ is."""
MX_BLOCK = 32
"""Elements of MX formats that share a scale."""
_TILE_ROWS, _TILE_BLOCKS = 128, 4


def unpack(words: Array, bits: int, axis: int, order: tuple[int, ...] = ()) -> NDArray[np.uint8]:
    """Small unsigned integers out of 32-bit ones, which hold the first in their lowest bits.

    Args:
        words: 32-bit integers of any dims.
        bits: of each small integer; 2, 4 or 8.
        axis: that becomes longer.
        order: place of each small integer within a word, if not in order.

    Returns:
        Integers from 0, with ``axis`` ``32 / bits`` times as long.
    """
    moved = np.moveaxis(words, axis, -1).astype(np.uint32)
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    shifts = shifts[list(order)] if order else shifts
    small = (moved[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    flat = small.astype(np.uint8).reshape(*moved.shape[:-1], -1)
    return np.moveaxis(flat, -1, axis)


def nibbles(data: Array) -> Floats:
    """Floats of 4 bits (E2M1), two in each byte along the last axis, the first in the low half."""
    raw = np.ascontiguousarray(data).view(np.uint8)
    small = np.stack([raw & 15, raw >> 4], -1).reshape(*raw.shape[:-1], -1)
    real: Floats = small.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return real


def exponents(scales: Array) -> Floats:
    """Scales that are powers of two, stored as the exponent plus 127 (E8M0)."""
    real: Floats = np.ascontiguousarray(scales).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    return real


def places_in_tiles(rows: int, blocks: int) -> NDArray[np.intp]:
    """Where a tensor core has the scale of each block, ``[rows, blocks]``.

    Tiles of 128 rows by 4 blocks follow each other row by row, and those at the edges are filled
    up. Within one, row ``r`` and block ``b`` lie at ``(r % 32) 16 + (r // 32) 4 + b``.

    Source: NVIDIA's cuBLAS manual, "1D block scaling factors layout".
    """
    row, block = np.arange(rows)[:, None], np.arange(blocks)
    tile = row // _TILE_ROWS * -(-blocks // _TILE_BLOCKS) + block // _TILE_BLOCKS
    within = row % 32 * 16 + row % _TILE_ROWS // 32 * _TILE_BLOCKS + block % _TILE_BLOCKS
    return tile * (_TILE_ROWS * _TILE_BLOCKS) + within


def scales_in_tiles(rows: int, blocks: int) -> int:
    """How many scales tiles hold, with those that fill up the edges."""
    return -(-rows // _TILE_ROWS) * -(-blocks // _TILE_BLOCKS) * _TILE_ROWS * _TILE_BLOCKS


def spread(numbers: Array, shape: tuple[int, ...], *, block: int = 0) -> Array:
    """Scales or offsets for each element of a weight.

    Args:
        numbers: one for all, for each row (``[rows]``, ``[rows, 1]``), for each column
            (``[1, columns]``), or for blocks of rows and columns; weights of experts have one
            axis more in front.
        shape: of the weight.
        block: length of blocks, of which the last may be shorter; 0 if they are all equal.

    Raises:
        ValueError: they do not fit the shape.
    """
    if numbers.size == 1:
        return numbers.reshape((1,) * len(shape))
    if numbers.ndim == len(shape) - 1:  # one for each row, or for each expert
        numbers = numbers[..., None]
    if numbers.ndim == 1 and len(shape) == 3:
        numbers = numbers[:, None, None]
    if numbers.ndim != len(shape):
        raise ValueError(f"scales of shape {list(numbers.shape)} do not fit {list(shape)}")
    if shape[-2:] == numbers.shape[-2:][::-1] and 1 in numbers.shape[-2:]:
        numbers = numbers.swapaxes(-1, -2)
    for axis, length in enumerate(shape):
        numbers = _repeated(numbers, axis, length, block)
    return numbers


def _repeated(numbers: Array, axis: int, length: int, block: int) -> Array:
    count = numbers.shape[axis]
    if count in (1, length):
        return numbers
    if block and -(-length // block) == count:
        size = block
    elif count and length % count == 0:
        size = length // count
    else:
        raise ValueError(f"{count} scales do not fit {length} elements of axis {axis}")
    longer = np.repeat(numbers, size, axis=axis)
    return longer[(slice(None),) * axis + (slice(length),)]


def expected_error(step: Array, real: Floats) -> float:
    """The relative Euclidean distance of a weight that was rounded to the nearest step.

    Args:
        step: distance of neighbouring values that can be stored, at each element.
        real: what the stored weight stands for.
    """
    power = float(np.mean(np.square(real, dtype=np.float64)))
    if not power:
        return 0.0
    return float(np.sqrt(np.mean(np.square(step, dtype=np.float64)) / 12 / power))
