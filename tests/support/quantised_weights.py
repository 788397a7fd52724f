"""Weights quantised and stored as the formats say, one element at a time with Python's integers.

Every function rounds a weight ``[rows, columns]`` to the nearest step and returns what a checkpoint
holds for it, by the ends of the names, and in float64 what that stands for.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Checkpoint = tuple[dict[str, np.ndarray], Floats]

AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)  # of the nibbles of a word, from the lowest on
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _words(numbers: list[int], bits: int) -> list[np.int32]:
    """Small integers in 32-bit ones, the first in the lowest bits."""
    each = 32 // bits
    words = []
    for start in range(0, len(numbers), each):
        word = 0
        for place, value in enumerate(numbers[start : start + each]):
            word |= value << (place * bits)
        words.append(np.uint32(word).view(np.int32))
    return words


def _rounded(weight: Floats, group: int, bits: int) -> tuple[list[list[int]], Floats, Floats]:
    """Integers from 0 of each element; scales and zeros of each group of a row."""
    rows, columns = weight.shape
    top = (1 << bits) - 1
    scales = np.empty((rows, columns // group))
    zeros = np.empty((rows, columns // group))
    integers: list[list[int]] = [[0] * columns for _ in range(rows)]
    for row in range(rows):
        for place in range(columns // group):
            part = weight[row, place * group : (place + 1) * group]
            low, high = min(part.min(), 0.0), max(part.max(), 0.0)
            scale = float(np.float16((high - low) / top)) or 1.0
            zero = min(max(round(-low / scale), 1), top)
            scales[row, place], zeros[row, place] = scale, zero
            for offset, value in enumerate(part):
                integers[row][place * group + offset] = min(
                    max(round(value / scale) + zero, 0), top
                )
    return integers, scales, zeros


def _real(integers: list[list[int]], scales: Floats, zeros: Floats, groups: list[int]) -> Floats:
    real = np.empty((len(integers), len(integers[0])))
    for row, values in enumerate(integers):
        for column, value in enumerate(values):
            place = groups[column]
            real[row, column] = (value - zeros[row, place]) * scales[row, place]
    return real


def gptq(weight: Floats, group: int, bits: int = 4, *, mixed: bool = False) -> Checkpoint:
    """``[in / n, out]``, zeros less one; ``mixed``: columns of a group lie anywhere."""
    columns = weight.shape[1]
    order = np.random.default_rng(1).permutation(columns) if mixed else np.arange(columns)
    integers, scales, zeros = _rounded(weight[:, order], group, bits)
    groups = [0] * columns
    placed: list[list[int]] = [[0] * columns for _ in integers]
    for place, column in enumerate(order):
        groups[column] = place // group
        for row, values in enumerate(integers):
            placed[row][column] = values[place]
    data = np.stack([_words(row, bits) for row in placed], 1)
    zero = np.stack([_words([int(z) - 1 for z in column], bits) for column in zeros.T])
    stored = {
        "qweight": data,
        "qzeros": zero,
        "scales": scales.T.astype(np.float16),
        "g_idx": np.asarray(groups, np.int32),
    }
    return stored, _real(placed, scales, zeros, groups)


def awq(weight: Floats, group: int) -> Checkpoint:
    """``[in, out / 8]`` with eight columns of each word in an order of their own."""
    integers, scales, zeros = _rounded(weight, group, 4)
    groups = [column // group for column in range(weight.shape[1])]

    def mixed(values: list[int]) -> list[int]:
        found = []
        for start in range(0, len(values), 8):
            found += [values[start + place] for place in AWQ_COLUMNS]
        return found

    columns = [[row[column] for row in integers] for column in range(weight.shape[1])]
    stored = {
        "qweight": np.stack([_words(mixed(column), 4) for column in columns]),
        "qzeros": np.stack([_words(mixed([int(z) for z in zero]), 4) for zero in zeros.T]),
        "scales": scales.T.astype(np.float16),
    }
    return stored, _real(integers, scales, zeros, groups)


def compressed(weight: Floats, group: int, bits: int = 4) -> Checkpoint:
    """``pack-quantized`` of compressed-tensors, asymmetric: zeros are packed along the rows."""
    integers, scales, zeros = _rounded(weight, group, bits)
    groups = [column // group for column in range(weight.shape[1])]
    stored = {
        "weight_packed": np.stack([_words(row, bits) for row in integers]),
        "weight_scale": scales.astype(np.float32),
        "weight_zero_point": np.stack([_words([int(z) for z in c], bits) for c in zeros.T], 1),
        "weight_shape": np.asarray(weight.shape, np.int64),
    }
    return stored, _real(integers, scales, zeros, groups)


def int8(weight: Floats, group: int) -> Checkpoint:
    """A symmetric scale for each row."""
    scale = (np.abs(weight).max(1, keepdims=True) / 127).astype(np.float32).astype(np.float64)
    integers = np.round(weight / scale).clip(-127, 127)
    stored = {"weight": integers.astype(np.int8), "weight_scale": scale.astype(np.float32)}
    return stored, integers * scale


def fp8_rows(weight: Floats, group: int) -> Checkpoint:
    """E4M3 with a scale for each row."""
    scale = (np.abs(weight).max(1, keepdims=True) / 448).astype(np.float32)
    data = (weight / scale).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": data, "weight_scale": scale}, data.astype(np.float64) * scale


def fp8_tensor(weight: Floats, group: int) -> Checkpoint:
    """E4M3 with one scale."""
    scale = np.float32(np.abs(weight).max() / 448)
    data = (weight / scale).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": data, "weight_scale": np.asarray([scale])}, data.astype(np.float64) * scale


def fp8_blocks(weight: Floats, group: int) -> Checkpoint:
    """E4M3 in blocks of 128 by 128, the last of which may be smaller."""
    rows, columns = (-(-length // 128) for length in weight.shape)
    scales = np.empty((rows, columns), np.float32)
    data = np.empty(weight.shape, ml_dtypes.float8_e4m3fn)
    real = np.empty(weight.shape)
    for i in range(rows):
        for j in range(columns):
            place = slice(i * 128, (i + 1) * 128), slice(j * 128, (j + 1) * 128)
            scales[i, j] = np.abs(weight[place]).max() / 448
            data[place] = (weight[place] / scales[i, j]).astype(ml_dtypes.float8_e4m3fn)
            real[place] = data[place].astype(np.float64) * float(scales[i, j])
    return {"weight": data, "weight_scale_inv": scales}, real


def mxfp4(weight: Floats, group: int) -> Checkpoint:
    """E2M1 with a power of two for each 32 of a row, as vLLM and compressed-tensors keep it."""
    rows, columns = weight.shape
    data = np.zeros((rows, columns // 2), np.uint8)
    scales = np.zeros((rows, columns // 32), np.uint8)
    real = np.empty(weight.shape)
    for row in range(rows):
        for block in range(columns // 32):
            part = weight[row, block * 32 : (block + 1) * 32]
            exponent = int(np.ceil(np.log2(max(np.abs(part).max(), 1e-30) / 6)))
            scales[row, block] = exponent + 127
            for offset, value in enumerate(part):
                size = abs(value) / 2.0**exponent
                code = min(range(8), key=lambda each: abs(E2M1[each] - size))
                column = block * 32 + offset
                real[row, column] = np.copysign(E2M1[code] * 2.0**exponent, value)
                code |= 8 if value < 0 else 0
                data[row, column // 2] |= code << (4 * (column % 2))
    return {"weight_packed": data, "weight_scale": scales}, real


FORMATS: dict[str, Callable[[Floats, int], Checkpoint]] = {
    "gptq": gptq,
    "gptq-int8": lambda weight, group: gptq(weight, group, 8),
    "gptq-mixed": lambda weight, group: gptq(weight, group, mixed=True),
    "awq": awq,
    "compressed": compressed,
    "compressed-int8": lambda weight, group: compressed(weight, group, 8),
    "int8": int8,
    "fp8-rows": fp8_rows,
    "fp8-tensor": fp8_tensor,
    "fp8-blocks": fp8_blocks,
    "mxfp4": mxfp4,
}
