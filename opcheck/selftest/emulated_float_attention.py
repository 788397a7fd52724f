"""Attention of the device whose sums and output stay in float32.

Probabilities go to 16 bits, for the product that they enter; in some kernels for float16 scores do,
too. See
:mod:`~ait_llm.opcheck.selftest.emulations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ait_llm.opcheck.selftest.emulated_attention import Array, Inputs

_TILE = 128
_HIDDEN, _MASKED = np.float32(-10000), np.float32(-65536)


def float_flash(
    query: Array,
    key: Array,
    value: Array,
    scale: float,
    added: Array | None,
    kept: type[np.generic] = np.float32,
    tile: int = _TILE,
) -> tuple[Array, Array]:
    """One head of flash attention, float32 ``[q, v]``, and the logarithms of its sums ``[q]``.

    Args:
        query: 16 bits ``[q, d]``.
        key: 16 bits ``[k, d]``.
        value: 16 bits ``[k, v]``.
        scale: of the scores.
        added: ``[q, k]``, to the scaled scores.
        kept: type of the scores.
        tile: keys at a time.
    """
    total = np.zeros((len(query), value.shape[1]), np.float32)
    sums = np.zeros((len(query), 1), np.float32)
    highest = np.full((len(query), 1), -np.inf, kept)
    for start in range(0, len(key), tile):
        keys = slice(start, start + tile)
        scores = (_wide(query) @ _wide(key[keys]).T).astype(kept) * kept(scale)
        if added is not None:
            scores = scores + added[:, keys].astype(kept)
        higher = np.maximum(highest, scores.max(1, keepdims=True))
        with np.errstate(invalid="ignore"):
            powers, shrink = (np.exp(_wide(each - higher)) for each in (scores, highest))
        part = _wide(powers.astype(query.dtype)) @ _wide(value[keys])
        total, sums = total * shrink + part, sums * shrink + powers.sum(1, keepdims=True)
        highest = higher
    logarithm: Array = (np.log(sums) + _wide(highest))[:, 0]
    found: Array = total / sums
    return found, logarithm


def relay_attention(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """relay_attention_decoder_mix.cce: a part of its own keys, one of shared ones, joined."""
    query, *_ = _all(inputs[:1])
    if params.get("maskType") or any(each is None for each in inputs[1:5]):
        return None
    own_keys, own_values, shared_keys, shared_values = _all(inputs[1:5])
    rows_of, keys_of, group_of, shared_of = (
        each.reshape(-1).tolist() for each in _all(inputs[6:10])
    )
    heads = params["headNum"]
    kv_heads = params.get("kvHeadNum") or heads
    split = query.reshape(len(query), heads, -1)
    output = np.zeros_like(split)
    first = 0
    for place, (rows, length, group) in enumerate(zip(rows_of, keys_of, group_of, strict=True)):
        count = shared_of[group] if group >= 0 else 0
        own_rows, first = slice(first, first + rows), first + rows
        if length <= count:
            continue
        keys, values = (
            np.concatenate([own[place, : length - count], shared[group, :count]]).reshape(
                length, kv_heads, -1
            )
            for own, shared in ((own_keys, shared_keys), (own_values, shared_values))
        )
        for head in range(heads):
            at = head * kv_heads // heads
            scale = params.get("qkScale", 1.0)
            sides = split[own_rows, head], keys[:, at], values[:, at]
            found, _ = float_flash(*sides, scale, None)
            output[own_rows, head] = found.astype(query.dtype)
    return [output.reshape(query.shape)]


def razor_fusion_attention(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """unpad_flash_attention_razor_fusion.cce, of one tile without blocks that are far apart."""
    query, key, value = _all(inputs[:3])
    heads, length = params["headNum"], params["razorLen"]
    text_rows, text_keys = params.get("textQLen", 0), params.get("textKvLen", 0)
    if params.get("tileQ", 0) != 1 or params.get("tileKv", 0) != 1:
        return None
    if len(query) != length + text_rows or len(key) != length + text_keys:
        return None
    if min(params["preTokens"], params["nextTokens"]) < length + _TILE:
        return None  # some blocks would be hidden
    split = [each.reshape(len(each), heads, -1) for each in (query, key, value)]
    output = np.zeros_like(split[0])
    for head in range(heads):
        own, keys, values = (each[:, head] for each in split)
        found, _ = float_flash(own, keys, values, params.get("qkScale", 1.0), None)
        output[:, head] = found.astype(query.dtype)
    return [output.reshape(query.shape)]


def latent_prefill(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """mla_prefill.cce of float16, and mla_prefill_high_precision.cce of bfloat16."""
    if params.get("calcType") != 4 or params.get("maskType", 0) not in (0, 3):
        return None
    query, rotated, key, rotated_key, value, rows_of, keys_of = _all(inputs[:7])
    causal = params.get("maskType", 0) == 3
    found, _ = _prefilled(
        np.concatenate([query, rotated], -1),
        np.concatenate([key, rotated_key], -1),
        value,
        list(zip(rows_of.tolist(), keys_of.tolist(), strict=True)),
        params["qkScale"],
        causal=causal,
    )
    return [found]


def ring_mla(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """ring_mla_prefill.cce of float16, and ring_mla_prefill_bf16.cce, the first of a ring."""
    if params.get("calcType") != 1:
        return None
    query, rotated, key, rotated_key, value, _, lengths = _all(inputs[:7])
    counts = lengths.tolist() if lengths.ndim == 2 else [lengths.tolist()] * 2
    found, logarithms = _prefilled(
        np.concatenate([query, rotated], -1),
        np.concatenate([key, rotated_key], -1),
        value,
        list(zip(*counts, strict=True)),
        params["qkScale"],
        causal=bool(params.get("maskType", 1)),
    )
    return [found, logarithms.T]


def _prefilled(
    query: Array,
    key: Array,
    value: Array,
    counts: Sequence[tuple[int, int]],
    scale: float,
    *,
    causal: bool,
) -> tuple[Array, Array]:
    """Attention of packed sequences, and the logarithms of their sums in float32."""
    kept = np.float16 if query.dtype == np.float16 else np.float32
    output = np.zeros((*query.shape[:2], value.shape[2]), query.dtype)
    logarithms = np.zeros(query.shape[:2], np.float32)
    row, column = 0, 0
    for rows, keys in counts:
        own, seen = slice(row, row + rows), slice(column, column + keys)
        row, column = row + rows, column + keys
        hidden = np.triu(np.full((rows, keys), _HIDDEN, np.float32), 1) if causal else None
        for head in range(query.shape[1]):
            at = head * key.shape[1] // query.shape[1]
            sides = query[own, head], key[seen, at], value[seen, at]
            found, logarithm = float_flash(*sides, scale, hidden, kept)
            output[own, head], logarithms[own, head] = found.astype(query.dtype), logarithm
    return output, logarithms


def laser_attention_grad(inputs: Inputs, params: Mapping[str, Any]) -> list[Array] | None:
    """laser_attention_grad: ``P`` and ``dS`` go to the matrix unit in bfloat16.

    The scale is multiplied at the end, with sums of float32 of all heads of a group.
    """
    query, key, value, gradient = _all(inputs[:4])
    mask, maxima, sums, forward = inputs[7], inputs[8], inputs[9], inputs[11]
    if params.get("inputLayout", "BNSD") != "BNSD" or maxima is None or sums is None:
        return None
    if forward is None or params.get("preTokens", query.shape[2]) < query.shape[2]:
        return None
    scale = np.float32(params.get("scaleValue", 0.08838834764831843))
    added = np.float32(0) if mask is None else _wide(mask) * _MASKED
    size, groups = query.shape[3], query.shape[1] // key.shape[1]
    totals = [np.zeros(each.shape, np.float32) for each in (query, key, value)]
    for batch in range(len(query)):
        for head in range(query.shape[1]):
            at = batch, head // groups
            own, keys, values = query[batch, head], key[at][:, :size], value[at]
            scores = _wide(own) @ _wide(keys).T * scale + added
            powers = np.exp(scores - maxima[batch, head][:, None]) / sums[batch, head][:, None]
            towards = _wide(gradient[batch, head]) @ _wide(values).T
            along = _wide(forward[batch, head]) * _wide(gradient[batch, head])
            steps = powers * (towards - along.sum(1, keepdims=True))
            kept, moved = (_wide(each.astype(query.dtype)) for each in (powers, steps))
            totals[0][batch, head] = moved @ _wide(keys)
            totals[1][at][:, :size] += moved.T @ _wide(own)
            totals[2][at] += kept.T @ _wide(gradient[batch, head])
    d_query, d_key, d_value = totals
    found = [each.astype(query.dtype) for each in (d_query * scale, d_key * scale, d_value)]
    return [*found, np.zeros_like(query)]


def _wide(array: Array) -> Array:
    return array.astype(np.float32)


def _all(arrays: Sequence[Array | None]) -> list[Array]:
    found = [each for each in arrays if each is not None]
    assert len(found) == len(arrays)
    return found
