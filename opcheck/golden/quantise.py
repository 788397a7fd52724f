"""Rounding to int8 and back, as the quantising kernels do it.

The rounding point decides the integer, so these functions round to float16 where the kernels do,
at any arithmetic precision. Source: the operator definitions of the acceleration library.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ait_llm.opcheck.golden.support import INTEGERS_OF_64_BITS

INT8_MAX = 127
# A row whose maximum is at most this is quantised to zeros.
_ZERO_ROW = 1e-12
_UNIT_BITS = 0xFFFFE000  # sign, exponent and ten bits of a float32


def round_half_away(values: Tensor) -> Tensor:
    """Round float32 tensors that hold float16 values to whole numbers, halves away from zero."""
    return torch.copysign(torch.floor(values.abs() + 0.5), values)


def to_int8(values: Tensor, lowest: int, *, half_away: bool = False) -> Tensor:
    """Cast to int8 through float16: clamp to ``[lowest, 127]``, then round to whole numbers.

    Args:
        values: any float dtype.
        lowest: -128 or -127.
        half_away: round halves away from zero, not to even.
    """
    clamped = values.to(torch.float16).float().clamp(lowest, INT8_MAX)
    return (round_half_away(clamped) if half_away else clamped.round()).to(torch.int8)


def divide_quant(values: Tensor, scale: Tensor, offset: Tensor, lowest: int) -> Tensor:
    """``values / scale + offset`` in float32 with the reciprocal of the scale, then int8.

    Args:
        values: float32.
        scale: float16 or bfloat16, one element.
        offset: int8, one element.
        lowest: -128 or -127.
    """
    return to_int8(values.float() * (1.0 / scale.float()) + offset.float(), lowest)


def multiply_quant(values: Tensor, scale: float, offset: int, lowest: int) -> Tensor:
    """``values * scale + offset`` with every step rounded to float16, then int8."""
    half = torch.float16
    scaled = values.to(half) * torch.tensor(scale, dtype=half)
    return to_int8(scaled + torch.tensor(offset, dtype=half), lowest)


def half_steps_quant(values: Tensor, scale: Tensor, offset: Tensor, lowest: int) -> Tensor:
    """``values / scale + offset`` with the reciprocal of the scale and every step in float16."""
    half = torch.float16
    inverse = (1.0 / scale.float()).to(half)
    return to_int8(values.to(half) * inverse + offset.to(half), lowest)


def float8_quant(values: Tensor, scale: float, offset: int, dtype: torch.dtype) -> Tensor:
    """``values * scale + offset``, clipped to the finite range of an 8-bit float and rounded.

    Steps are in float16 for float16 values, else in float32. Source: the operator definition for
    Ascend 950.
    """
    wide = torch.float16 if values.dtype == torch.float16 else torch.float32
    scaled = values.to(wide) * torch.tensor(scale, dtype=wide) + torch.tensor(offset, dtype=wide)
    limit = torch.finfo(dtype).max
    return scaled.float().clamp(-limit, limit).to(dtype)


def per_channel_quant(values: Tensor, scale: Tensor, offset: Tensor | None, lowest: int) -> Tensor:
    """``values / scale`` rounded to float16, plus the offset in float16, then int8.

    The offset is added before rounding. A scale of one element is inverted first and multiplied
    with, in float16 for float16 values.

    Args:
        values: float16 or bfloat16 ``[..., n]``.
        scale: same dtype, ``[n]`` or ``[1]``.
        offset: int8 ``[n]`` or ``[1]``, or None.
        lowest: -128 or -127.
    """
    if scale.numel() > 1:
        quotient = (values.float() / scale.float()).to(torch.float16)
    else:
        inverse = 1.0 / scale.float()
        if values.dtype == torch.float16:
            inverse = inverse.to(torch.float16).float()
        quotient = (values.float() * inverse).to(torch.float16)
    if offset is not None:
        quotient = quotient + offset.to(torch.float16)
    return to_int8(quotient, lowest)


def per_channel_dequant(values: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    """``(values - offset) * scale`` as float16, clipped to its finite range."""
    shifted = values.float() - (0.0 if offset is None else offset.float())
    limit = torch.finfo(torch.float16).max
    return (shifted * scale.float()).clamp(-limit, limit).to(torch.float16)


def dynamic_quant_symmetric(
    values: Tensor, lowest: int, *, half_away: bool = False, half_steps: bool = True
) -> tuple[Tensor, Tensor]:
    """Scale each row of the last dimension so that its largest magnitude becomes 127.

    Args:
        values: ``[..., n]``.
        lowest: -128 or -127.
        half_away: round halves away from zero, not to even.
        half_steps: take factor and product in float16 where ``values`` is float16.

    Returns:
        int8 values ``[..., n]`` and float32 scales ``[...]``.
    """
    wide = values.float()
    largest = wide.abs().amax(-1, keepdim=True)
    zero_row = largest <= _ZERO_ROW
    factor = INT8_MAX / largest.masked_fill(zero_row, 1.0)
    if half_steps and values.dtype == torch.float16:
        factor = factor.to(torch.float16).float()
    scaled = (wide * factor).masked_fill(zero_row, 0.0)
    quantised = to_int8(scaled, lowest, half_away=half_away)
    return quantised, (largest / INT8_MAX).squeeze(-1)


def dynamic_quant_direct(values: Tensor) -> tuple[Tensor, Tensor]:
    """Scale each row of float32 so that its largest magnitude becomes 127; to even, at once.

    Returns:
        int8 values ``[..., n]`` and float32 scales ``[...]``.
    """
    largest = values.abs().amax(-1, keepdim=True)
    factor = INT8_MAX / largest.masked_fill(largest <= _ZERO_ROW, math.inf)
    whole = (values * factor).round().clamp(-INT8_MAX, INT8_MAX)
    return whole.to(torch.int8), (largest / INT8_MAX).squeeze(-1).float()


def dynamic_quant_asymmetric(
    values: Tensor, lowest: int, *, half_away: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Map the range of each row of the last dimension onto ``[-128, 127]``.

    Factor, product and the sum with the offset are float16 where ``values`` are.

    Args:
        values: ``[..., n]``.
        lowest: -128 or -127.
        half_away: round halves away from zero, not to even.

    Returns:
        int8 values ``[..., n]``, float32 scales ``[...]`` and float32 offsets ``[...]``.
    """
    wide = values.float()
    high, low = wide.amax(-1, keepdim=True), wide.amin(-1, keepdim=True)
    scale = (high - low) / 255
    divisor = scale.masked_fill(scale <= _ZERO_ROW, 1.0)
    offset = -(high + low) / (2 * divisor)
    step = torch.float16 if values.dtype == torch.float16 else torch.float32
    shifted = wide.to(step) * (1 / divisor).to(step) + offset.to(step)
    return to_int8(shifted, lowest, half_away=half_away), scale.squeeze(-1), offset.squeeze(-1)


def scale_from_bits(scale: Tensor) -> Tensor:
    """A dequantisation scale as float32.

    64-bit integers carry the bit pattern of a float32 in their low half; floats are cast.
    """
    if scale.dtype in INTEGERS_OF_64_BITS:
        bits = scale.view(torch.int64) & 0xFFFFFFFF
        return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)
    return scale.float()


def matrix_unit_scale(scale: Tensor) -> Tensor:
    """The same where the matrix unit itself scales: of 64-bit ones it takes the upper 19 bits.

    Source: the library's description of the scale of quantised products.
    """
    if scale.dtype in INTEGERS_OF_64_BITS:
        return scale_from_bits(scale.view(torch.int64) & _UNIT_BITS)
    return scale.float()
