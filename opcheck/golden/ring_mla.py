"""RingMLA: attention over one part of the keys, merged with the result of the parts before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.attention_half import attention_with_lse_of
from ait_llm.opcheck.golden.base import HALF_FACTOR, Arithmetic, Params, Refusal, Result, golden_op
from ait_llm.opcheck.golden.masks import Mask
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    U32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    enum_param,
    float_param,
    int_param,
    refused,
    tensor_at,
)

NAME = "RingMLAOperation"
_NOPE, _ROPE = 128, 64


class CalcType(IntEnum):
    """Values of ``calcType``."""

    MERGE = 0
    FIRST_RING = 1


def _heads(params: Params) -> tuple[int, int]:
    heads = int_param(NAME, params, "headNum", 0)
    kv_heads = int_param(NAME, params, "kvHeadNum", 0) or heads
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise refused(
            NAME,
            f"headNum is {heads} and kvHeadNum {kv_heads}; the first is a multiple",
            Refusal.PARAM,
        )
    return heads, kv_heads


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[T, H, Dv]`` and float32 ``[H, T]``."""
    merge = enum_param(NAME, params, "calcType", CalcType, 0) is CalcType.MERGE
    check_count(NAME, descs, 9 if merge else 7)
    unmasked = not bool_param(NAME, params, "maskType", True) and descs[5].is_absent
    rows = []
    for real in (F16, BF16):
        for length in (I32, U32):
            mask = descs[5].dtype if unmasked else real
            rows.append((*(real,) * 5, mask, length, *((real, F32) if merge else ())))
    check_dtypes(NAME, descs, rows)
    _heads(params)
    for index in range(5):
        check_rank(NAME, descs, index, 3)
    if not unmasked:
        check_rank(NAME, descs, 5, 2, 3)
    check_rank(NAME, descs, 6, 1, 2)
    # The library compares the tensors with each other, and none of them with its parameters.
    (tokens, heads), (keys, kv_heads) = descs[0].shape[:2], descs[2].shape[:2]
    for index, shape in enumerate(
        (
            (tokens, heads, _NOPE),
            (tokens, heads, _ROPE),
            (keys, kv_heads, _NOPE),
            (keys, kv_heads, _ROPE),
            (keys, kv_heads, _NOPE),
        )
    ):
        check_shape(NAME, descs, index, shape)
    if len(descs[6].shape) == 2:
        check_shape(NAME, descs, 6, (2, descs[6].shape[1]))
    output = replace(descs[0], (tokens, heads, descs[4].shape[2]))
    if merge:
        check_shape(NAME, descs, 7, output.shape)
        check_shape(NAME, descs, 8, (heads, tokens))
    return output, replace(descs[0], (heads, tokens), F32)


def _merged(new: Tensor, new_lse: Tensor, old: Tensor, old_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean of two results ``[qs, H, Dv]`` by their sums ``[qs, H]``."""
    highest = torch.maximum(new_lse, old_lse)
    highest = highest.masked_fill(highest == -math.inf, 0.0)
    weights = [torch.exp(lse - highest) for lse in (new_lse, old_lse)]
    total = weights[0] + weights[1]
    mean = new * weights[0].unsqueeze(-1) + old * weights[1].unsqueeze(-1)
    divisor = total.masked_fill(total == 0, 1.0)
    return mean / divisor.unsqueeze(-1), highest + total.log()


@golden_op(NAME, infer_shape=infer_shape, kernel=HALF_FACTOR)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Attention with its logarithms of sums; merged with the previous ones unless first in a ring.

    The causal mask starts at the first row and the first key. A mask of zeros hides nothing. A
    sequence without keys keeps the previous output and gets a logarithm of 0. Inputs: query
    ``[T, H, 128]`` and ``[T, H, 64]``; key ``[Tk, Hk, 128]`` and ``[Tk, Hk, 64]``; value
    ``[Tk, Hk, Dv]``; mask; lengths ``[B]`` or ``[2, B]`` (rows, keys); previous output
    ``[T, H, Dv]`` and logarithms ``[H, T]``.
    """
    query = torch.cat([tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)], dim=-1)
    key = torch.cat([tensor_at(NAME, inputs, 2), tensor_at(NAME, inputs, 3)], dim=-1)
    value, lengths = tensor_at(NAME, inputs, 4), tensor_at(NAME, inputs, 6).long()
    merge = enum_param(NAME, params, "calcType", CalcType, 0) is CalcType.MERGE
    heads, kv_heads = _heads(params)
    if (query.shape[1], key.shape[1]) != (heads, kv_heads):
        shapes = f"{list(query.shape)} and {list(key.shape)}"
        raise refused(NAME, f"query and key are {shapes}; the heads are {heads} and {kv_heads}")
    counts, keys = (lengths[0], lengths[1]) if lengths.dim() == 2 else (lengths, lengths)
    if int(counts.sum()) > len(query) or int(keys.sum()) > len(key):
        raise refused(
            NAME, f"lengths {lengths.tolist()} do not fit {len(query)} and {len(key)} rows"
        )
    wide = arithmetic.widen(query[:0]).dtype
    output = torch.zeros(*query.shape[:2], value.shape[2], dtype=wide)
    lse = torch.zeros(*query.shape[:2], dtype=wide)
    old, old_lse = output, lse
    if merge:
        old = tensor_at(NAME, inputs, 7).to(wide)
        old_lse = tensor_at(NAME, inputs, 8).to(wide).T
    causal = bool_param(NAME, params, "maskType", True)
    mask_tensor = tensor_at(NAME, inputs, 5) if causal else None
    first, first_key = 0, 0
    for number, (rows, length) in enumerate(zip(counts.tolist(), keys.tolist(), strict=True)):
        own = slice(first, first + rows)
        first += rows
        if length == 0:
            output[own] = old[own]
            continue
        hidden = mask_tensor is not None
        if mask_tensor is not None and mask_tensor.dim() == 3:
            hidden = bool((mask_tensor[number % len(mask_tensor)] != 0).any())
        part, total = attention_with_lse_of(arithmetic, query.dtype)(
            arithmetic.widen(query[own]),
            arithmetic.widen(key[first_key : first_key + length]),
            arithmetic.widen(value[first_key : first_key + length]),
            scale=float_param(NAME, params, "qkScale", 1.0),
            mask=Mask(diagonal=0) if hidden else Mask(),
        )
        first_key += length
        if merge:
            part, total = _merged(part, total, old[own], old_lse[own])
        output[own], lse[own] = part, total
    rounded = arithmetic.round(output, query.dtype)
    return Result((rounded, arithmetic.round(lse.T.contiguous(), torch.float32)))
