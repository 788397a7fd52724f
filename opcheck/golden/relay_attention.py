"""RelayAttention: decoding over keys of its own and a prefix shared between sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.attention_half import attention_in_float32
from ait_llm.opcheck.golden.base import (
    PROBABILITIES,
    Arithmetic,
    Params,
    Refusal,
    Result,
    UnverifiableError,
    golden_op,
)
from ait_llm.opcheck.golden.masks import Mask, tensor_mask
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import (
    float_param,
    int_param,
    optional_at,
    refused,
    tensor_at,
)

NAME = "RelayAttentionOperation"


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
    """Shape and dtype of the query."""
    check_count(NAME, descs, 10)
    real = descs[0].dtype
    mask = descs[5].dtype if descs[5].is_absent else real
    check_dtypes(NAME, descs, [(*(x,) * 5, mask, *(I32,) * 4) for x in (F16, BF16)])
    heads, _ = _heads(params)
    check_rank(NAME, descs, 0, 2)
    for index in (1, 2, 3, 4):
        check_rank(NAME, descs, index, 3, 4)
    for index in (6, 7, 8, 9):
        check_rank(NAME, descs, index, 1)
    if descs[0].shape[1] % heads:
        raise refused(NAME, f"query {list(descs[0].shape)} does not split into {heads} heads")
    check_shape(NAME, descs, 2, descs[1].shape)
    check_shape(NAME, descs, 4, descs[3].shape)
    for index in (7, 8):
        check_shape(NAME, descs, index, descs[6].shape)
    check_shape(NAME, descs, 9, descs[3].shape[:1])
    return (descs[0],)


@golden_op(NAME, infer_shape=infer_shape, kernel=PROBABILITIES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Attention over ``cat(own[:length - shared], prefix[map][:shared])``.

    Key lengths count the shared keys. A sequence without keys of its own has a zero result. Inputs:
    query ``[T, H * D]``; key, value ``[B, S, Hk, D]`` or ``[B, S, Hk * D]``; shared key and value
    ``[G, S, ...]``; mask; query lengths ``[B]``; key lengths ``[B]``; prefix of each sequence
    ``[B]``, -1 for none; prefix lengths ``[G]``.

    Raises:
        UnverifiableError: keys and values are lists of tensors, which dumps do not hold.
    """
    query = tensor_at(NAME, inputs, 0)
    if any(optional_at(inputs, index) is None for index in (1, 2)):
        raise UnverifiableError(f"{NAME}: keys and values are lists in host memory, never dumped")
    heads, kv_heads = _heads(params)
    rows_of, keys_of, groups, shared_of = (
        tensor_at(NAME, inputs, index).reshape(-1).tolist() for index in (6, 7, 8, 9)
    )
    mask_tensor = optional_at(inputs, 5) if int_param(NAME, params, "maskType", 0) else None
    split = arithmetic.widen(query).reshape(len(query), heads, -1)
    output = torch.zeros_like(split)
    first = 0
    for number, (rows, length, group) in enumerate(zip(rows_of, keys_of, groups, strict=True)):
        own_rows, first = slice(first, first + rows), first + rows
        shared = shared_of[group] if group >= 0 else 0
        if length <= shared:
            continue
        parts = []
        for index in (1, 2):
            own = tensor_at(NAME, inputs, index)[number, : length - shared]
            pieces = [own.reshape(len(own), kv_heads, -1)]
            if shared:
                prefix = tensor_at(NAME, inputs, index + 2)[group, :shared]
                pieces.append(prefix.reshape(len(prefix), kv_heads, -1))
            joined = torch.cat(pieces)
            if len(joined) != length:
                raise refused(NAME, f"sequence {number} has {len(joined)} of {length} keys")
            parts.append(arithmetic.widen(joined))
        mask = Mask()
        if mask_tensor is not None:
            mask = Mask(
                tensor_mask(
                    NAME,
                    mask_tensor,
                    batch=number,
                    per_head=False,
                    first_row=0,
                    rows=rows,
                    keys=length,
                )
            )
        scale = float_param(NAME, params, "qkScale", 1.0)
        attention = attention_in_float32(arithmetic, query.dtype)
        own = split[own_rows]
        output[own_rows] = attention(own, parts[0], parts[1], scale=scale, mask=mask)[0]
    return Result((arithmetic.round(output.reshape(query.shape), query.dtype),))
