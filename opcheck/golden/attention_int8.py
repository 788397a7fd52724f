"""Softmax attention of one sequence of int8 tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ait_llm.opcheck.golden.attention_core import row_blocks
from ait_llm.opcheck.golden.masks import Mask
from ait_llm.opcheck.golden.quantise import INT8_MAX

_NO_MASK = Mask()
# Keys whose probabilities the device quantises with one scale.
DEVICE_KEYS = 512


# float32 is exact for whole numbers below this; an int8 is at most 128.
_EXACT, _LARGEST = 1 << 24, 128


def weighted_by_int8(powers: Tensor, values: Tensor, scale: Tensor | None, block: int) -> Tensor:
    """Values weighted by probabilities as int8 keeps them, in float64.

    Args:
        powers: unnormalised probabilities ``exp(S - max)``, float32 ``[H, rows, keys]``.
        values: whole numbers of int8 as float32, ``[Hk, keys, Dv]``.
        scale: that of each head, which broadcasts; None takes a block's largest over 127.
        block: keys that share a scale; 0 for all of a row.
    """
    heads, rows, keys = powers.shape
    total = torch.zeros(heads, rows, values.shape[2], dtype=torch.float64)
    if scale is None and not block:
        scale = powers.amax(-1, keepdim=True) / INT8_MAX
    for start in range(0, keys, block or DEVICE_KEYS):
        part = powers[..., start : start + (block or DEVICE_KEYS)]
        step = part.amax(-1, keepdim=True) / INT8_MAX if scale is None else scale
        step = step.masked_fill(step == 0, 1.0)
        whole = (part / step).half().float().round_().clamp_(-_LARGEST, INT8_MAX)
        own = values[:, start : start + part.shape[-1]]
        sums = torch.bmm(whole.reshape(len(values), -1, part.shape[-1]), own)
        total += sums.reshape(heads, rows, -1).double() * step
    return total


def attend_int8(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    score_scale: Tensor,
    value_scale: Tensor,
    probability_scale: Tensor | None,
    mask: Mask = _NO_MASK,
    row_scale: Tensor | None = None,
    block: int = DEVICE_KEYS,
) -> Tensor:
    """Attention of int8 tensors with exact integer products.

    Unnormalised probabilities ``exp(S - max)`` are quantised too, with a given scale per head or
    with the maximum over 127 of each block of keys.

    Args:
        query: int8 ``[qs, H, D]``.
        key: int8 ``[ks, Hk, D]``.
        value: int8 ``[ks, Hk, Dv]``.
        scale: factor of the dequantised scores.
        score_scale: dequantisation of scores, ``[H]``.
        value_scale: dequantisation of values, ``[H]``.
        probability_scale: quantisation of probabilities ``[H]``; None takes each block's own.
        mask: what is added to the scores.
        row_scale: further factor per query row.
        block: keys that share a scale of probabilities; 0 for all of a row.

    Returns:
        float32 ``[qs, H, Dv]``; rows that see no key are zero.
    """
    heads = query.shape[1]

    def per_head(vector: Tensor) -> Tensor:
        return vector.float().reshape(heads, 1, 1)

    is_exact = query.shape[2] * _LARGEST**2 <= _EXACT
    kind = torch.float32 if is_exact else torch.float64
    keys = key.to(kind).permute(1, 2, 0)
    values = value.float().transpose(0, 1)
    output = torch.zeros(query.shape[0], heads, value.shape[2])
    for rows in row_blocks(query.shape[0], heads * key.shape[0]):
        own = query[slice(*rows)].to(kind).transpose(0, 1).reshape(len(keys), -1, query.shape[2])
        product = torch.bmm(own, keys).float().reshape(heads, -1, key.shape[0])
        scores = product.mul_(per_head(score_scale))
        if row_scale is not None:
            factor = row_scale.float().reshape(-1, 1)
            scores.mul_(factor if len(factor) == 1 else factor[slice(*rows)])
        scores.mul_(scale)
        added = mask.additive(rows, (0, key.shape[0]), scores.dtype)
        if added is not None:
            scores.add_(added)
        highest = scores.amax(-1, keepdim=True)
        powers = scores.sub_(highest.masked_fill(highest == -math.inf, 0.0)).exp_()
        given = None if probability_scale is None else per_head(probability_scale)
        found = weighted_by_int8(powers, values, given, block)
        weighted = found.float() * per_head(value_scale)
        sums = powers.sum(-1, keepdim=True)
        result = weighted / sums.masked_fill(sums == 0, 1.0)
        output[slice(*rows)] = result.transpose(0, 1)
    return output
