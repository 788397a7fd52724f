"""Attention of one sequence with int8 latent keys and float rotated keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ait_llm.opcheck.golden.attention_int8 import DEVICE_KEYS, weighted_by_int8
from ait_llm.opcheck.golden.masks import Mask

# Bound on the scores of one block of rows.
_BLOCK_SCORES = 2**24


def attend_latent_int8(
    query: Tensor,
    rotated: Tensor,
    latent: Tensor,
    rope: Tensor,
    *,
    scale: float,
    score_scale: Tensor,
    value_scale: Tensor,
    mask: Mask,
    block: int = DEVICE_KEYS,
) -> tuple[Tensor, Tensor]:
    """``S = (q . k) * score_scale + q_rope . k_rope``, then ``* scale``, mask, softmax, values.

    Integer products are exact. Unnormalised probabilities are quantised with the maximum
    over 127 of each block of keys.

    Args:
        query: int8 ``[qs, H, C]``.
        rotated: its rotated part, 16-bit float ``[qs, H, R]``.
        latent: int8 keys, which are the values too, ``[ks, 1, C]``.
        rope: rotated keys ``[ks, 1, R]``.
        scale: factor of the scores.
        score_scale: dequantisation of integer scores ``[H]``.
        value_scale: dequantisation of values ``[H]``.
        mask: what is added to the scores.
        block: keys that share a scale of probabilities; 0 for all of a row.

    Returns:
        float32 ``[qs, H, C]`` and the logarithm of the rows' sums ``[qs, H]``.
    """
    heads, count = query.shape[1], len(latent)
    keys, rotated_keys = latent[:, 0].double(), rope[:, 0].float()
    output = torch.zeros(query.shape)
    sums = torch.full(query.shape[:2], -math.inf)
    step = max(1, _BLOCK_SCORES // max(1, heads * count))
    for first in range(0, len(query), step):
        rows = slice(first, min(first + step, len(query)))
        integer = query[rows].double() @ keys.T
        scores = integer.float() * score_scale.float().reshape(1, heads, 1)
        scores = (scores + rotated[rows].float() @ rotated_keys.T) * scale
        added = mask.additive((rows.start, rows.stop), (0, count), scores.dtype)
        if added is not None:
            scores = scores + added.transpose(0, 1)
        highest = scores.amax(dim=-1, keepdim=True)
        highest = highest.masked_fill(highest == -math.inf, 0.0)
        powers = torch.exp(scores - highest)
        values = keys.float().unsqueeze(0)
        found = weighted_by_int8(powers.transpose(0, 1), values, None, block).transpose(0, 1)
        weighted = found.float() * value_scale.float().reshape(1, heads, 1)
        total = powers.sum(dim=-1, keepdim=True)
        output[rows] = weighted / total.masked_fill(total == 0, 1.0)
        sums[rows] = (total.log() + highest).squeeze(-1)
    return output, sums
