"""The real numbers that quantised weights stand for, of the arrays that are stored of them.

Each function returns the numbers, float32, and the step of rounding at each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np

from ait_llm.formats import packed
from ait_llm.formats.elements import Array
from ait_llm.formats.packed import Floats

Stored = Mapping[str, Array]
"""The arrays of a weight by what they are: ``data``, ``scale``, ``zero``, ``index``."""


def gptq(stored: Stored, bits: int) -> tuple[Floats, Array]:
    """``[in / n, out]``; zeros are stored less one, except in the second version of the format.

    Zeros of a symmetric weight say which version it is: they are half of the range. Others are
    taken as the first version, which nearly all files are.
    """
    data = packed.unpack(stored["data"], bits, 0).astype(np.float32)
    zero = packed.unpack(stored["zero"], bits, 1).astype(np.float32)
    if not (zero == 1 << (bits - 1)).all():
        zero += 1
    rows, groups = len(data), len(zero)
    group = stored.get("index")
    if group is None:
        group = np.arange(rows) // -(-rows // groups)
    scale = stored["scale"].astype(np.float32)[group]
    return ((data - zero[group]) * scale).T, scale.T


def awq(stored: Stored) -> tuple[Floats, Array]:
    """``[in, out / 8]``, the eight of a word in an order of their own."""
    data, zero = (
        packed.unpack(stored[what], 4, 1, packed.AWQ_ORDER).astype(np.float32)
        for what in ("data", "zero")
    )
    times = len(data) // len(zero)
    scale = np.repeat(stored["scale"].astype(np.float32), times, axis=0)
    return ((data - np.repeat(zero, times, axis=0)) * scale).T, scale.T


def compressed(stored: Stored, bits: int, shape: tuple[int, ...]) -> tuple[Floats, Array]:
    """Integers are stored plus half of their range, and so are packed zeros, along the rows."""
    half = 1 << (bits - 1)
    data = packed.unpack(stored["data"], bits, -1)[..., : shape[-1]].astype(np.float32) - half
    scale, zero = stored["scale"].astype(np.float32), stored.get("zero")
    if zero is not None and zero.dtype == np.int32:
        rows = packed.unpack(zero, bits, -2).astype(np.float32) - half
        zero = rows[..., : shape[-2], :]
    if "index" in stored:
        group = stored["index"].reshape(-1)
        scale = scale[..., group]
        zero = None if zero is None else zero[..., group]
    if zero is not None:
        data -= packed.spread(zero.astype(np.float32), shape)
    step = packed.spread(scale, shape)
    return data * step, step


def are_of_blocks(scale: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True for a scale for each 32 elements of a row, in rows or in tiles."""
    blocks = shape[-1] // packed.MX_BLOCK
    if scale == (*shape[:-1], blocks):
        return shape[-1] % packed.MX_BLOCK == 0
    return len(shape) == 2 and math.prod(scale) == packed.scales_in_tiles(shape[0], blocks)


def scale_of_blocks(stored: Array, shape: tuple[int, ...]) -> Floats:
    """The scale of each element."""
    scale, blocks = packed.exponents(stored), shape[-1] // packed.MX_BLOCK
    if scale.shape != (*shape[:-1], blocks):
        scale = scale.reshape(-1)[packed.places_in_tiles(shape[0], blocks)]
    return np.repeat(scale, packed.MX_BLOCK, axis=-1)


def mxfp4(stored: Stored) -> tuple[Floats, Array]:
    small = packed.nibbles(stored["data"])
    scale = scale_of_blocks(stored["scale"], small.shape)
    steps = np.select([np.abs(small) < 2, np.abs(small) < 4], [0.5, 1.0], 2.0)
    return small * scale, steps.astype(np.float32) * scale


def mxfp8(stored: Stored, step: float) -> tuple[Floats, Array]:
    data = stored["data"].astype(np.float32)
    data *= scale_of_blocks(stored["scale"], data.shape)
    return data, np.abs(data) * np.float32(step)


def real_scales(scale: Array) -> Floats:
    real: Floats = packed.exponents(scale) if scale.dtype == np.uint8 else scale.astype(np.float32)
    return real


def with_codes(stored: Stored, shape: tuple[int, ...]) -> tuple[Floats, Array]:
    """Four bits that are numbers of one of 16 codes, the first in the high half; scales of blocks.

    Scales may be such numbers themselves, of 256 codes, with an offset for all.

    Source: ``QuantState`` and ``dequantize_4bit`` of bitsandbytes.
    """
    raw = np.ascontiguousarray(stored["data"]).view(np.uint8).reshape(-1)
    place = np.stack([raw >> 4, raw & 15], -1).reshape(-1)[: math.prod(shape)]
    code, scale = stored["code"].astype(np.float32), stored["scale"].reshape(-1)
    if "nested_absmax" in stored:
        state = json.loads(np.ascontiguousarray(stored["state"]).tobytes())
        outer = stored["nested_absmax"].reshape(-1).astype(np.float32)
        size = int(state["nested_blocksize"])
        if len(outer) != -(-len(scale) // size):
            raise ValueError(f"{len(outer)} scales of {len(scale)} scales in blocks of {size}")
        scale = stored["nested_quant_map"].astype(np.float32)[scale]
        scale = scale * np.repeat(outer, size)[: len(scale)] + np.float32(state["nested_offset"])
    step = np.repeat(scale.astype(np.float32), len(place) // len(scale))
    spacing = np.gradient(np.sort(code))[np.argsort(np.argsort(code))]
    real: Floats = (code[place] * step).reshape(shape)
    return real, (spacing[place] * step).reshape(shape)
