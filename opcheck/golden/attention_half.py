"""Flash attention that keeps what is on the way in 16 bits, to sample what its roundings do.

Kernels for float16 store scores, scaled, masked and shifted scores, probabilities, and, before they
divide, sums of rows and output; the default one of SelfAttention stores sums and output after each
block of keys. Source: the public kernel sources of the acceleration library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.attention_core import attend, attend_with_lse, row_blocks
from ait_llm.opcheck.golden.base import Arithmetic
from ait_llm.opcheck.golden.masks import Mask

# Keys at a time, the fewest that the kernel takes: the more blocks, the more roundings.
_TILE = 128
_SEED = 20261123
# Of the product of the norms; a bound is some five times what the moves of one sample do.
_SUM_OF_FLOAT32 = 2.0**-23
# The exponential of a kernel for one chip: the eighth power of a polynomial in float16.
_LOWEST = -15.0859375
_CUBIC = (0.12492632389959098, 0.007646947396369985, 0.00024482644572629384)
# Its error is known, not one of a rounding that is typically 0.74 / 3**0.5 of float16's unit.
# Where one key has nearly all the weight it is larger than samples tell: two thirds are added.
_PER_MOVE = 5 / 3 * 2.0**11 * 3**0.5 / 0.74
_NO_MASK = Mask()

Store = Callable[[Tensor], Tensor]


def stored(arithmetic: Arithmetic, dtype: torch.dtype) -> Store:
    """What storing values in ``dtype`` may do to them: each moves up or down by chance.

    Args:
        arithmetic: by how much, relative to a value; numbers below the type's smallest normal one
            move as much as that does, infinite ones stay.
        dtype: of 16 bits.
    """
    generator = torch.Generator().manual_seed(_SEED + arithmetic.sample)
    least = torch.finfo(dtype).smallest_normal

    def store(values: Tensor) -> Tensor:
        signs = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8)
        size = values.abs().clamp_(min=least).mul_(arithmetic.move)
        size.masked_fill_(size == math.inf, 0.0)
        return values + size * signs.mul_(2).sub_(1)

    return store


def attend_stored(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    store: Store,
    half_sums: bool,
    scale: float,
    mask: Mask = _NO_MASK,
    clamp: tuple[float, float] | None = None,
    clamp_last: bool = False,
    row_scale: Tensor | None = None,
    own_power: Store | None = None,
    kept: Store | None = None,
    summed: Store | None = None,
) -> tuple[Tensor, Tensor]:
    """The attention of ``attention_core``, with ``store`` wherever values are kept.

    Args:
        query: ``[qs, H, D]``.
        key: ``[ks, Hk, D]``.
        value: ``[ks, Hk, Dv]``.
        store: what keeping a value in 16 bits does to it.
        half_sums: sums and output are kept after each block of keys, not only at the end.
        scale: factor of the scores.
        mask: what is added to the scores.
        clamp: lowest and highest score.
        clamp_last: clamp after the mask is added, not before.
        row_scale: further factor per query row.
        own_power: the exponential of shifted scores, where it is not that of float32.
        kept: what keeping probabilities for their product does to them, where sums and output stay
            in float32 and see nothing of it.
        summed: what adding up scores in float32 does, by the products of the norms.

    Returns:
        ``[qs, H, Dv]`` and the logarithm of the sums of rows ``[qs, H]``; rows that see no key are
        zero and -inf.
    """
    heads, groups = query.shape[1], query.shape[1] // key.shape[1]
    keys = key.transpose(0, 1).repeat_interleave(groups, 0)
    values = value.transpose(0, 1).repeat_interleave(groups, 0)
    factor = store(query.new_tensor(scale))
    output = query.new_zeros(query.shape[0], heads, value.shape[2])
    logs = query.new_full((query.shape[0], heads), -math.inf)
    for rows in row_blocks(query.shape[0], heads * key.shape[0]):
        seen = mask.keys_seen(*rows, key.shape[0])
        if seen[0] == seen[1]:
            continue
        block, own_rows = slice(*seen), slice(*rows)
        asked, found_keys = query[own_rows].transpose(0, 1), keys[:, block].transpose(1, 2)
        scores = asked @ found_keys
        if summed is not None:
            scores += summed(
                asked.norm(dim=-1, keepdim=True) * found_keys.norm(dim=-2, keepdim=True)
            )
        scores = store(scores)
        if row_scale is not None:
            own = row_scale.to(scores.dtype).reshape(-1, 1)
            scores = store(scores * (own if len(own) == 1 else own[own_rows]))
        scores = store(scores * factor)
        added = mask.additive(rows, seen, query.dtype)
        if clamp is not None and not clamp_last:
            scores = scores.clamp(*clamp)
        if added is not None:
            scores = store(scores + added)
        if clamp is not None and clamp_last:
            scores = scores.clamp(*clamp)
        found, log = _weighted(
            scores, values[:, block], store, own_power or torch.exp, kept, half_sums=half_sums
        )
        output[own_rows], logs[own_rows] = found.transpose(0, 1), log.T
    return output, logs


def _weighted(
    scores: Tensor,
    values: Tensor,
    store: Store,
    power: Store,
    kept: Store | None,
    *,
    half_sums: bool,
) -> tuple[Tensor, Tensor]:
    """Softmax of ``[H, rows, keys]`` times ``[H, keys, Dv]``, and the logarithm of its sums."""
    highest = scores.amax(-1, keepdim=True)
    blind = highest == -math.inf
    shifted = scores - highest.masked_fill(blind, 0.0)
    # A hidden score has no size that could be rounded.
    hidden = shifted == -math.inf
    powers = power(store(shifted.masked_fill(hidden, 0.0)))
    if kept is not None:
        powers = powers.masked_fill(hidden, 0.0)
        sums = powers.sum(-1, keepdim=True)
        found = kept(powers) @ values / sums.masked_fill(sums == 0, 1.0)
        return found, (sums.log() + highest).squeeze(-1)
    powers = store(powers).masked_fill(hidden, 0.0)
    total = scores.new_zeros(*scores.shape[:2], values.shape[2])
    sums = scores.new_zeros(*scores.shape[:2], 1)
    tile = _TILE if half_sums else max(1, scores.shape[-1])
    for start in range(0, scores.shape[-1], tile):
        keys = slice(start, start + tile)
        part = powers[..., keys] @ values[:, keys]
        own = powers[..., keys].sum(-1, keepdim=True)
        if half_sums:
            # Sums of a tile go by pairs: all additions but the last err as much as that one.
            part, own = store(part), store(store(own))
        total, sums = store(total + part), store(sums + own)
    divided = store(total / sums.masked_fill(sums == 0, 1.0))
    return divided, (sums.log() + highest).squeeze(-1)


def eighth_power(shifted: Tensor) -> Tensor:
    """The exponential of numbers up to 0 as a kernel approximates it, in its types.

    ``(1 + x * (a + x * (b + x * c))) ** 8``, each step up to the sum in float16. Source: the public
    kernel sources, ``unpad_flash_attention_nz`` with M8V2.
    """
    x = shifted.clamp(min=_LOWEST).half()
    first, second, third = (torch.tensor(each, dtype=torch.float16) for each in _CUBIC)
    y = (x * (x * (x * third + second) + first)).float() + 1
    return y.square().square().square()


def attention_of(
    arithmetic: Arithmetic,
    dtype: torch.dtype,
    *,
    half_sums: bool = False,
    plain: bool = False,
    eighth_power: bool = False,
) -> Callable[..., Tensor]:
    """``attend``, or where what is on the way moves and kernels keep it in float16, its like.

    Args:
        arithmetic: of the operator.
        dtype: of its inputs.
        half_sums: see :func:`attend_stored`.
        plain: the kernel keeps scores in float32.
        eighth_power: it has that exponential.
    """
    if plain or not arithmetic.move or dtype != torch.float16:
        return attend
    store = stored(arithmetic, dtype)
    own_power = _moved_power(arithmetic) if eighth_power else None

    def attention(*given: Tensor, **options: Any) -> Tensor:
        options |= {"store": store, "half_sums": half_sums, "own_power": own_power}
        return attend_stored(*given, **options)[0]

    return attention


def _moved_power(arithmetic: Arithmetic) -> Store:
    """The exponential, moved up or down by what that of the kernel is off."""
    generator = torch.Generator().manual_seed(_SEED - arithmetic.sample)

    def power(shifted: Tensor) -> Tensor:
        exact = shifted.exp()
        signs = torch.randint(0, 2, exact.shape, generator=generator, dtype=torch.int8)
        off = (eighth_power(shifted) - exact).mul_(_PER_MOVE * arithmetic.move)
        return exact + off * signs.mul_(2).sub_(1)

    return power


def attention_with_lse_of(
    arithmetic: Arithmetic, dtype: torch.dtype, *, plain: bool = False
) -> Callable[..., tuple[Tensor, Tensor]]:
    """The same of ``attend_with_lse``."""
    if plain or not arithmetic.move or dtype != torch.float16:
        return attend_with_lse
    return partial(attend_stored, store=stored(arithmetic, dtype), half_sums=False)


def attention_in_float32(
    arithmetic: Arithmetic, dtype: torch.dtype
) -> Callable[..., tuple[Tensor, Tensor]]:
    """``attend_with_lse``, or where what is on the way moves, its like whose probabilities do.

    The kernel stores them for the product that they enter, and leaves all else in float32.
    """
    if not arithmetic.move:
        return attend_with_lse
    kept = stored(arithmetic, dtype)
    summed = partial(noise, arithmetic=arithmetic, store=kept)
    return partial(attend_stored, store=_as_it_is, kept=kept, summed=summed, half_sums=False)


def noise(sizes: Tensor, arithmetic: Arithmetic, store: Store) -> Tensor:
    """What float32 makes of sums of products that cancel: up or down by chance.

    Args:
        sizes: products of the norms of what is multiplied.
        arithmetic: by how much values of 16 bits move.
        store: moves them.
    """
    return (store(sizes) - sizes) * (_SUM_OF_FLOAT32 / arithmetic.move)


def _as_it_is(values: Tensor) -> Tensor:
    return values
