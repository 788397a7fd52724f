"""Attention and rotary positions of ONNX Runtime, as single nodes.

Their meaning is that of ``docs/ContribOperators.md`` of ONNX Runtime.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Tensor,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of ``[batch, tokens, heads * width]`` over a cache and the tokens themselves.

    Args:
        query: with the keys and values behind it where these are None.
        key, value: ``[batch, tokens, kv_num_heads * width]``.
        past_key, past_value: ``[batch, kv_num_heads, earlier tokens, width]``.
        seqlens_k: tokens of each request so far without the last one, ``[batch]``.
        total_sequence_length: the longest of them with it.
        cos_cache, sin_cache: ``[positions, half of what is turned]``.

    Returns:
        The result as ``query``, and the caches with the tokens of this run.

    Raises:
        ValueError: requests are padded, or a cache has more room than tokens, where what lies there
            is up to the implementation.
    """
    batch, tokens = query.shape[:2]
    if key is None or value is None:
        width = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        first, second = num_heads * width, (num_heads + kv_num_heads) * width
        key, value = query[..., first:second], query[..., second:]
        query = query[..., :first]
    q, k, v = (
        each.reshape(batch, tokens, heads, -1).transpose(1, 2)
        for each, heads in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    earlier = 0 if past_key is None else past_key.shape[2]
    total = earlier + tokens
    if {int(each) + 1 for each in seqlens_k.reshape(-1)} != {total}:
        raise ValueError("requests are padded, or their cache has room for more tokens")
    if do_rotary and cos_cache is not None and sin_cache is not None:
        tables = (each[earlier:total] for each in (cos_cache, sin_cache))
        cos, sin = tables
        q, k = (_turned(each, cos, sin, interleaved=bool(rotary_interleaved)) for each in (q, k))
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    share = num_heads // kv_num_heads
    scores = q @ k.repeat_interleave(share, 1).mT * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    last = torch.arange(earlier, total)[:, None]
    places = torch.arange(total)[None, :]
    hidden = places > last
    if local_window_size > 0:
        hidden |= places <= last - local_window_size
    weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
    result = weights @ v.repeat_interleave(share, 1)
    return result.transpose(1, 2).reshape(batch, tokens, -1), k, v


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of ``[batch, tokens, heads * width]``.

    Args:
        query: as said.
        key, value: the same of other tokens, or ``[batch, heads, tokens, width]``.
        bias: of query, key and value behind one another.
        key_padding_mask: ``[batch, all tokens]``, 0 where there is none.
        attention_bias: added to the scores, ``[batch or 1, heads or 1, tokens, all tokens]``.
        past_key, past_value: ``[batch, heads, earlier tokens, width]``.

    Returns:
        The result as ``query``, and keys and values ``[batch, heads, all tokens, width]``.

    Raises:
        ValueError: another form of mask.
    """
    batch, tokens, hidden = query.shape
    if bias is not None:
        if key.dim() == 4 or value.dim() == 4:
            raise ValueError("keys and values in heads with a bias are not computed")
        sizes = [hidden, hidden, bias.shape[0] - 2 * hidden]
        query, key, value = (
            each + part
            for each, part in zip((query, key, value), torch.split(bias, sizes), strict=True)
        )
    q, k, v = (
        each if each.dim() == 4 else each.reshape(batch, -1, num_heads, each.shape[-1] // num_heads)
        .transpose(1, 2)
        for each in (query, key, value)
    )  # fmt: skip
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    total = k.shape[2]
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, total):
            raise ValueError("only a mask of all tokens of each request is computed")
        scores = scores + mask_filter_value * (key_padding_mask == 0)[:, None, None, :]
    if unidirectional:
        last = torch.arange(total - tokens, total)[:, None]
        scores = scores.masked_fill(torch.arange(total)[None, :] > last, -torch.inf)
    if attention_bias is not None:
        scores = scores + attention_bias
    result = torch.softmax(scores, -1) @ v
    return result.transpose(1, 2).reshape(batch, tokens, -1), k, v


def rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Rotary positions.

    Args:
        x: ``[batch, tokens, heads * width]`` or ``[batch, heads, tokens, width]``.
        position_ids: ``[batch, tokens]``, or the first of all requests, ``[1]``.
        cos_cache, sin_cache: ``[positions, half of what is turned]``.
        num_heads, rotary_embedding_dim: 0 where all of each head is turned, for its width then
            is twice that of the tables.
    """
    heads = x
    if x.dim() == 3:
        count = num_heads or x.shape[-1] // (2 * cos_cache.shape[-1])
        heads = x.reshape(*x.shape[:2], count, -1).transpose(1, 2)
    places = position_ids
    if places.numel() == 1:
        places = places.reshape(1, 1) + torch.arange(heads.shape[2])
    half = rotary_embedding_dim // 2 or cos_cache.shape[-1]
    cos, sin = (each[places][:, None, :, :half] for each in (cos_cache, sin_cache))
    made = _turned(heads, cos, sin, interleaved=bool(interleaved))
    return made if x.dim() == 4 else made.transpose(1, 2).reshape(x.shape)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotary positions of ``[batch, heads, tokens, width]``, of the first elements of each head."""
    half = cos.shape[-1]
    part, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        first, second = part[..., 0::2], part[..., 1::2]
        pair = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
        return torch.cat([pair.flatten(-2), rest], -1)
    first, second = part[..., :half], part[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], -1)
