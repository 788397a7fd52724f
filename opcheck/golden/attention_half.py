"""Flash attention that keeps everything in 16 bits, to sample what its roundings do.

The default kernel for float16 stores scores, scaled, masked and shifted scores, probabilities, sums
of rows, the output after each block of keys and the quotient in float16. Source: the public kernel
sources of the acceleration library.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ait_llm.opcheck.golden.attention_core import row_blocks
from ait_llm.opcheck.golden.base import Arithmetic
from ait_llm.opcheck.golden.masks import Mask

# Keys at a time, the fewest that the kernel takes: the more blocks, the more roundings.
_TILE = 128
_SEED = 20261123
_NO_MASK = Mask()

Store = Callable[[Tensor], Tensor]


def stored(arithmetic: Arithmetic, dtype: torch.dtype) -> Store:
    """What storing values in ``dtype`` may do to them: each moves up or down by chance.

    Args:
        arithmetic: by how much, relative to a value; numbers below the type's smallest normal one
            move as much as that does.
        dtype: of 16 bits.
    """
    generator = torch.Generator().manual_seed(_SEED + arithmetic.sample)
    least = torch.finfo(dtype).smallest_normal

    def store(values: Tensor) -> Tensor:
        signs = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8)
        size = values.abs().clamp_(min=least).mul_(arithmetic.move)
        return values + size * signs.mul_(2).sub_(1)

    return store


def attend_stored(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    store: Store,
    scale: float,
    mask: Mask = _NO_MASK,
    clamp: tuple[float, float] | None = None,
    clamp_last: bool = False,
    row_scale: Tensor | None = None,
) -> Tensor:
    """The attention of ``attention_core.attend``, with ``store`` wherever values are kept.

    Returns:
        ``[qs, H, Dv]``; rows that see no key are zero.
    """
    heads, groups = query.shape[1], query.shape[1] // key.shape[1]
    keys = key.transpose(0, 1).repeat_interleave(groups, 0)
    values = value.transpose(0, 1).repeat_interleave(groups, 0)
    factor = store(query.new_tensor(scale))
    output = query.new_zeros(query.shape[0], heads, value.shape[2])
    for rows in row_blocks(query.shape[0], heads * key.shape[0]):
        seen = mask.keys_seen(*rows, key.shape[0])
        if seen[0] == seen[1]:
            continue
        block = slice(*seen)
        scores = store(query[slice(*rows)].transpose(0, 1) @ keys[:, block].transpose(1, 2))
        if row_scale is not None:
            own = row_scale.to(scores.dtype).reshape(-1, 1)
            scores = store(scores * (own if len(own) == 1 else own[slice(*rows)]))
        scores = store(scores * factor)
        added = mask.additive(rows, seen, query.dtype)
        if clamp is not None and not clamp_last:
            scores = scores.clamp(*clamp)
        if added is not None:
            scores = store(scores + added)
        if clamp is not None and clamp_last:
            scores = scores.clamp(*clamp)
        output[slice(*rows)] = _weighted(scores, values[:, block], store).transpose(0, 1)
    return output


def _weighted(scores: Tensor, values: Tensor, store: Store) -> Tensor:
    """Softmax of ``[H, rows, keys]`` times ``[H, keys, Dv]``, a tile of keys after the other."""
    highest = scores.amax(-1, keepdim=True)
    blind = highest == -math.inf
    shifted = scores - highest.masked_fill(blind, 0.0)
    # A hidden score has no size that could be rounded.
    hidden = shifted == -math.inf
    powers = store(store(shifted.masked_fill(hidden, 0.0)).exp()).masked_fill(hidden, 0.0)
    total = scores.new_zeros(*scores.shape[:2], values.shape[2])
    sums = scores.new_zeros(*scores.shape[:2], 1)
    for start in range(0, scores.shape[-1], _TILE):
        tile = slice(start, start + _TILE)
        part = store(powers[..., tile] @ values[:, tile])
        # Sums of a tile go by pairs: all but the last additions together err as the last one does.
        own = store(store(powers[..., tile].sum(-1, keepdim=True)))
        total, sums = store(total + part), store(sums + own)
    return store(total / sums.masked_fill(sums == 0, 1.0))
