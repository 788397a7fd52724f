"""Softmax attention of one sequence, for every attention operator.

Per query head h with key/value head ``h // (H / Hk)``: scores, logN factor, scale, clamp, mask,
softmax, weighted sum of values; in this order. Source: kernel definition of the acceleration
library. Work goes by blocks of query rows, of which only the keys are touched that the mask shows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ait_llm.opcheck.golden.masks import Mask

# Bound on one block of scores, and rows of one that is masked: few, to touch few hidden keys.
_BLOCK_SCORES = 2**24
_MASKED_ROWS = 256
# Rows of which several numbers for each score are made: few, to stay in the processor's cache.
_NOTED_ROWS = 64
_TILE = 128  # keys after which kernels store their sums
_KEPT_AT_END = 3.0  # those of weights and of weighted values once, and the quotient
# exp of less than this is zero: float32 ends at exp(-104), float64 at exp(-746).
_VANISHED = {torch.float32: -128.0, torch.float64: -768.0}
_NO_MASK = Mask()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    mask: Mask = _NO_MASK,
    clamp: tuple[float, float] | None = None,
    clamp_last: bool = False,
    row_scale: Tensor | None = None,
    sensitivity: Tensor | None = None,
    stored: bool = False,
    half_sums: bool = True,
) -> Tensor:
    """Attention of one sequence.

    Args:
        query: ``[qs, H, D]``, float32 or float64.
        key: ``[ks, Hk, D]``, same dtype; H is a multiple of Hk.
        value: ``[ks, Hk, Dv]``, same dtype.
        scale: factor of the scores.
        mask: what is added to the scores.
        clamp: lowest and highest score.
        clamp_last: clamp after the mask is added, not before.
        row_scale: further factor per query row (``[qs]`` or ``[1]``), before the scale.
        sensitivity: ``[qs, H]``, filled with that of each row to changes of the values, where
            probabilities are at hand; see :class:`~ait_llm.opcheck.golden.base.Result`.
        stored: the kernel keeps scores and probabilities in 16 bits: ``sensitivity`` has to be
            filled, also with what these roundings do.
        half_sums: and sums and output after each block of keys, not only at the end.

    Returns:
        ``[qs, H, Dv]``; rows that see no key are zero.
    """
    if row_scale is not None:
        query = query * row_scale.to(query.dtype).reshape(-1, 1, 1)
    heads, kv_heads = query.shape[1], key.shape[1]
    keys, values = key.transpose(0, 1), value.transpose(0, 1)
    noted = sensitivity is not None and stored
    fused = clamp is None and key.shape[2] == value.shape[2] and query.shape[0] > 1 and not noted
    reach = None
    if clamp is None and mask.bias is not None and query.shape[0] > 1:
        reach = _reach(query, key, value, scale)
    if fused and _is_causal(mask, query.shape[0], key.shape[0], reach, query.dtype):
        count = query.shape[0]
        block = query.reshape(count, kv_heads, -1, query.shape[2]).permute(1, 2, 0, 3)
        result = _fused(block, keys[:, :count], values[:, :count], scale, None, causal=True)
        return result.flatten(0, 1).transpose(0, 1)
    if noted:
        squares, norms = keys.square(), torch.linalg.vector_norm(values, dim=-1)
        norms.div_(value.shape[2] ** 0.5)
    output = query.new_zeros(query.shape[0], heads, value.shape[2])
    unmasked = mask.bias is None and mask.diagonal is None
    longest = query.shape[0] if unmasked and fused else _MASKED_ROWS
    longest = _NOTED_ROWS if noted else longest
    limit = None if unmasked and fused else heads * key.shape[0]
    for rows in row_blocks(query.shape[0], limit, longest):
        seen = mask.keys_seen(*rows, key.shape[0])
        if seen[0] == seen[1]:
            continue
        block = query[slice(*rows)].reshape(rows[1] - rows[0], kv_heads, -1, query.shape[2])
        block = block.permute(1, 2, 0, 3)
        added = mask.additive(rows, seen, query.dtype)
        if added is not None and reach is not None:
            seen, added = _trimmed(seen, added, reach)
        shown = keys[:, slice(*seen)], values[:, slice(*seen)]
        if fused:
            result = _fused(block, *shown, scale, added)
        else:
            scores = _scores(block, shown[0], scale, added, clamp, clamp_last)
            weights = scores.softmax(dim=-1)
            result = torch.bmm(weights, shown[1])
            if sensitivity is not None:
                if stored:
                    kept = 3 - (added is None)
                    given = (block, squares[:, slice(*seen)], norms[:, slice(*seen)])
                    sums = _kept_sums(weights) if half_sums else _KEPT_AT_END
                    felt = _felt_stored(
                        given, scores, weights, result, scale=scale, kept=kept, kept_sums=sums
                    )
                else:
                    felt = _felt(weights, shown[1])
                sensitivity[slice(*rows)] = felt.reshape(heads, -1).T
            result = result.reshape(*block.shape[:3], -1)
        result = result.flatten(0, 1)
        if added is not None:
            blind = (added == -math.inf).all(dim=2, keepdim=True)
            if bool(blind.any()):
                result = result.masked_fill(blind, 0.0)
        output[slice(*rows)] = result.transpose(0, 1)
    return output


def attend_with_lse(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Mask = _NO_MASK
) -> tuple[Tensor, Tensor]:
    """Attention of one sequence, and the logarithm of each row's sum of exponentials.

    Args:
        query: ``[qs, H, D]``, float32 or float64.
        key: ``[ks, Hk, D]``, same dtype.
        value: ``[ks, Hk, Dv]``, same dtype.
        scale: factor of the scores.
        mask: what is added to the scores.

    Returns:
        ``[qs, H, Dv]`` and ``log(sum(exp(scores)))`` ``[qs, H]``; rows that see no key are zero
        and -inf.
    """
    heads, kv_heads = query.shape[1], key.shape[1]
    keys, values = key.permute(1, 2, 0), value.transpose(0, 1)
    output = query.new_zeros(query.shape[0], heads, value.shape[2])
    sums = query.new_full((query.shape[0], heads), -math.inf)
    for rows in row_blocks(query.shape[0], heads * key.shape[0]):
        seen = mask.keys_seen(*rows, key.shape[0])
        if seen[0] == seen[1]:
            continue
        block = query[slice(*rows)].reshape(rows[1] - rows[0], kv_heads, -1, query.shape[2])
        block = block.permute(1, 2, 0, 3)
        scores = torch.bmm(block.flatten(1, 2), keys[:, :, slice(*seen)]) * scale
        scores = _masked(scores, block.shape[1], mask.additive(rows, seen, query.dtype))
        total = scores.logsumexp(dim=-1)
        finite = total.masked_fill(total == -math.inf, 0.0)
        weights = torch.exp(scores - finite.unsqueeze(-1))
        result = torch.bmm(weights, values[:, slice(*seen)])
        output[slice(*rows)] = result.reshape(heads, -1, value.shape[2]).transpose(0, 1)
        sums[slice(*rows)] = total.reshape(heads, -1).T
    return output, sums


def row_blocks(
    rows: int, scores_per_row: int | None, longest: int = _MASKED_ROWS
) -> list[tuple[int, int]]:
    """Ranges of rows with a bounded number of scores, or without bound if those are not stored."""
    step = longest
    if scores_per_row is not None:
        step = min(longest, _BLOCK_SCORES // max(scores_per_row, 1))
    step = max(1, step)
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


def _reach(query: Tensor, key: Tensor, value: Tensor, scale: float) -> float | None:
    """How much less must be added to a key than to another so that its probability is zero.

    Scores differ by at most twice the largest product of norms. None if any entry is not finite:
    a hidden value that is Inf or NaN makes the result NaN all the same.
    """
    if not query.numel() or not key.numel() or not value.numel():
        return None
    norms = [float(torch.linalg.vector_norm(x, dim=-1).max()) for x in (query, key)]
    bound = 2 * abs(scale) * norms[0] * norms[1] - _VANISHED[query.dtype]
    extremes = torch.aminmax(value)  # NaN if any is
    finite = math.isfinite(float(extremes.min)) and math.isfinite(float(extremes.max))
    return bound if math.isfinite(bound) and finite else None


def _is_causal(mask: Mask, rows: int, keys: int, reach: float | None, dtype: torch.dtype) -> bool:
    """Whether row i sees the keys up to i, with nothing added to them.

    A mask tensor counts as hiding what becomes zero exactly.
    """
    if mask.bias is None:
        return mask.diagonal == 0 and mask.window is None and keys >= rows
    if reach is None or rows != keys or mask.window is not None or mask.diagonal not in (None, 0):
        return False
    corner = mask.bias(0, 1, 0, min(2, keys)).to(dtype)
    if corner.shape[0] != 1 or float(corner[0, 0, 0]) != 0 or float(corner[0, 0, -1]) > -reach:
        return keys == 1 and corner.shape[0] == 1 and float(corner[0, 0, 0]) == 0
    for first, last in row_blocks(rows, None):
        added = mask.bias(first, last, 0, keys)
        if added.shape[0] != 1 or added.shape[1] != last - first:
            return False
        if bool((added[0, :, :first] != 0).any()) or bool((added[0, :, last:] > -reach).any()):
            return False
        square = added[0, :, first:last].to(dtype)
        above = torch.ones_like(square, dtype=torch.bool).triu(1)
        if bool((square > -reach)[above].any()) or bool((square != 0)[~above].any()):
            return False
    return True


def _trimmed(seen: tuple[int, int], added: Tensor, reach: float) -> tuple[tuple[int, int], Tensor]:
    """Drop the last keys that every row of the block hides, if no row hides all keys.

    Their probability is exactly zero, so this changes no result.
    """
    shown = added >= added.amax(dim=2, keepdim=True) - reach
    length = int(shown.flatten(0, 1).any(dim=0).nonzero()[-1]) + 1
    return (seen[0], seen[0] + length), added[:, :, :length]


def _grouped(added: Tensor | None, kv_heads: int) -> Tensor | None:
    """A mask block as ``[1 or Hk, 1 or G, rows, keys]``."""
    if added is None:
        return None
    heads = 1 if added.shape[0] == 1 else kv_heads
    return added.reshape(heads, -1, *added.shape[1:])


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    added: Tensor | None,
    *,
    causal: bool = False,
) -> Tensor:
    """torch's own kernel, which never stores the scores. ``query`` is ``[Hk, G, rows, D]``."""
    groups = query.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key.unsqueeze(1).expand(-1, groups, -1, -1),
        value.unsqueeze(1).expand(-1, groups, -1, -1),
        attn_mask=_grouped(added, query.shape[0]),
        is_causal=causal,
        scale=scale,
    )


def _scores(
    query: Tensor,
    key: Tensor,
    scale: float,
    added: Tensor | None,
    clamp: tuple[float, float] | None,
    clamp_last: bool,
) -> Tensor:
    """What is exponentiated, ``[Hk, G * rows, keys]``: heads of a group are rows of one product."""
    scores = torch.bmm(query.flatten(1, 2), key.transpose(1, 2)) * scale
    if clamp is not None and not clamp_last:
        scores = scores.clamp(*clamp)
    scores = _masked(scores, query.shape[1], added)
    if clamp is not None and clamp_last:
        scores = scores.clamp(*clamp)
    return scores


def _felt(weights: Tensor, value: Tensor) -> Tensor:
    """The norm of what each value adds to a row of ``weights @ value``, over that row's width."""
    norms = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
    squares = torch.bmm(weights.square(), norms.square_())
    return squares.div_(value.shape[-1]).sqrt_()


def _felt_stored(
    block: tuple[Tensor, Tensor, Tensor],
    scores: Tensor,
    weights: Tensor,
    result: Tensor,
    *,
    scale: float,
    kept: int,
    kept_sums: Tensor | float,
) -> Tensor:
    """At least what roundings of scores and probabilities do to a row of ``weights @ value``.

    A score that is off by d changes the row by ``d * weight * (value - result)``, and of the
    difference the norm is at least the difference of the norms. Relative changes of query and key
    move the products, one of the score moves it by its size, each of ``kept`` times; once more by
    its distance to the highest one, before the exponential, and its probability as much as one
    does. Those of the value move the row by what they add to it.

    Args:
        block: query ``[Hk, G, rows, D]``, squares of the key ``[Hk, keys, D]``, and norms of the
            rows of the value ``[Hk, keys]``, over the root of their width.
        scores, weights: ``[Hk, G * rows, keys]``, before and after the softmax; the first are
            overwritten.
        result: ``[Hk, G * rows, Dv]``.
        scale: of the scores.
        kept: how often a score is kept before it is shifted.
        kept_sums: what storing sums does to a row, in squares of the row.

    Returns:
        ``[Hk, G * rows, 1]``, per relative change, over the root of the width.
    """
    query, keys, norms = block
    own = torch.linalg.vector_norm(result, dim=-1, keepdim=True).div_(result.shape[-1] ** 0.5)
    highest = scores.amax(dim=-1, keepdim=True)
    # What is hidden has no weight; its score is not to make a NaN of that.
    scores.clamp_(min=-(torch.finfo(scores.dtype).max ** 0.25))
    squares = query.flatten(1, 2).square().mul_(2 * scale * scale)
    sizes = torch.bmm(squares, keys.transpose(1, 2))
    # kept * score**2 + (score - highest)**2 + 1
    sizes.addcmul_(scores, scores, value=kept + 1).addcmul_(scores, highest, value=-2)
    sizes.add_(highest.square().add_(1))
    apart = torch.sub(norms.unsqueeze(-2), own).square_()
    moved = torch.addcmul(norms.square().unsqueeze(-2), apart, sizes).mul_(weights.square())
    found: Tensor = moved.sum(dim=-1, keepdim=True) + own.square() * kept_sums
    return found.clamp_(min=0).sqrt_()


def _kept_sums(weights: Tensor) -> Tensor:
    """What storing the sums after each tile of keys does to a row, in squares of the row.

    The sum of a tile is stored twice, that of all tiles so far once; the weighted sums at least at
    the end, their parts at least if all are alike, and the quotient.
    """
    keys = weights.shape[-1]
    tiles = max(1, keys // _TILE)
    own = weights[..., : tiles * _TILE].reshape(*weights.shape[:-1], tiles, -1).sum(dim=-1)
    so_far = own.cumsum(dim=-1).square_().sum(dim=-1, keepdim=True)
    squares: Tensor = so_far + 2 * own.square().sum(dim=-1, keepdim=True) + (2 + 1 / tiles)
    return squares


def _masked(scores: Tensor, groups: int, added: Tensor | None) -> Tensor:
    """The mask added to scores ``[Hk, G * rows, keys]``."""
    grouped = _grouped(added, scores.shape[0])
    if grouped is None:
        return scores
    split = scores.reshape(scores.shape[0], groups, -1, scores.shape[2])
    return (split + grouped).reshape(scores.shape)
