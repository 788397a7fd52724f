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


def quantised_probabilities(powers: Tensor, scale: Tensor | None, block: int) -> Tensor:
    """Unnormalised probabilities as int8 keeps them, in float64.

    Args:
        powers: ``exp(S - max)``, float32 ``[..., keys]``.
        scale: that of each head, which broadcasts; None takes a block's largest over 127.
        block: keys that share a scale; 0 for all of a row.
    """
    parts = []
    for part in torch.split(powers, block or max(1, powers.shape[-1]), dim=-1):
        step = part.amax(-1, keepdim=True) / INT8_MAX if scale is None else scale
        step = step.masked_fill(step == 0, 1.0)
        whole = (part / step).half().double().round().clamp(-128, INT8_MAX)
        parts.append(whole * step)
    return torch.cat(parts, dim=-1)


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
    heads, groups = query.shape[1], query.shape[1] // key.shape[1]

    def per_head(vector: Tensor) -> Tensor:
        return vector.float().reshape(heads, 1, 1)

    keys = key.double().permute(1, 2, 0).repeat_interleave(groups, 0)
    values = value.double().transpose(0, 1).repeat_interleave(groups, 0)
    output = torch.zeros(query.shape[0], heads, value.shape[2])
    for rows in row_blocks(query.shape[0], heads * key.shape[0]):
        product = torch.bmm(query[slice(*rows)].double().transpose(0, 1), keys).float()
        scores = product * per_head(score_scale)
        if row_scale is not None:
            factor = row_scale.float().reshape(-1, 1)
            scores = scores * (factor if len(factor) == 1 else factor[slice(*rows)])
        scores = scores * scale
        added = mask.additive(rows, (0, key.shape[0]), scores.dtype)
        if added is not None:
            scores = scores + added
        highest = scores.amax(-1, keepdim=True)
        powers = torch.exp(scores - highest.masked_fill(highest == -math.inf, 0.0))
        given = None if probability_scale is None else per_head(probability_scale)
        quantised = quantised_probabilities(powers, given, block)
        weighted = torch.bmm(quantised, values).float() * per_head(value_scale)
        sums = powers.sum(-1, keepdim=True)
        result = weighted / sums.masked_fill(sums == 0, 1.0)
        output[slice(*rows)] = result.transpose(0, 1)
    return output
