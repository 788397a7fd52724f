"""LaserAttention and LaserAttentionGrad: attention of the training library and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.attention_half import noise, stored
from ait_llm.opcheck.golden.base import (
    ATTENTION,
    PROBABILITIES,
    Arithmetic,
    Params,
    Refusal,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    float_param,
    int_param,
    optional_at,
    refused,
    tensor_at,
)

NAME = "LaserAttentionOperation"
GRAD = "LaserAttentionGradOperation"
_MASKED = -65536.0
_SCALE = 0.08838834764831843
# Head sizes of query, key and value in layout SBH, which joins heads.
_JOINED_SIZES = (192, 256, 128)
_MASK, _GRAD_MASK = 6, 7


def _joined(op: str, params: Params) -> bool:
    layout = params.get("inputLayout", "BNSD")
    if layout not in ("BNSD", "SBH"):
        raise refused(op, f"inputLayout is {layout!r}; it takes BNSD or SBH", Refusal.PARAM)
    return bool(layout == "SBH")


def _dims(op: str, desc: TensorDesc | Tensor, joined: bool, size: int) -> tuple[int, int, int, int]:
    """Batch, heads, length and head size."""
    shape = tuple(desc.shape)
    if not joined:
        return shape[0], shape[1], shape[2], shape[3]
    if shape[2] % size:
        raise refused(op, f"{shape[2]} columns do not split into heads of {size}")
    return shape[1], shape[2] // size, shape[0], size


def _check(op: str, descs: Sequence[TensorDesc], params: Params) -> bool:
    """Checks of query, key and value; tells whether heads are joined."""
    check_dtypes(op, descs, [(BF16, BF16, BF16)])
    joined = _joined(op, params)
    for index in range(3):
        check_rank(op, descs, index, 3 if joined else 4)
    query, key, value = (
        _dims(op, desc, joined, size) for desc, size in zip(descs[:3], _JOINED_SIZES, strict=True)
    )
    heads = int_param(op, params, "headNum", 0)
    if query[1] != heads or key[1] == 0 or heads % key[1]:
        raise refused(op, f"query has {query[1]} and key {key[1]} heads; headNum is {heads}")
    if key[:3] != value[:3] or key[0] != query[0] or key[3] < query[3]:
        raise refused(op, "query, key and value differ in batch, heads, length or head size")
    return joined


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Maxima and sums ``[B, N, S]``, a placeholder, and the attention like the query."""
    check_count(NAME, descs, 10)
    joined = _check(NAME, descs, params)
    query, value = descs[0], descs[2]
    batch, heads, length, _ = _dims(NAME, query, joined, _JOINED_SIZES[0])
    if not descs[_MASK].is_absent:
        check_shape(NAME, descs, _MASK, (length, length))
    rows = replace(query, (batch, heads, length), F32)
    last = heads * _JOINED_SIZES[2] if joined else value.shape[3]
    return rows, rows, query, replace(query, (*query.shape[:-1], last))


def infer_shape_grad(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Descriptions of query, key and value, and a placeholder like the query."""
    check_count(GRAD, descs, 15)
    _check(GRAD, descs, params)
    return descs[0], descs[1], descs[2], descs[0]


def _separate(op: str, tensor: Tensor, joined: bool, size: int, arithmetic: Arithmetic) -> Tensor:
    """Any layout as wide ``[B, N, S, D]``."""
    wide = arithmetic.widen(tensor)
    if not joined:
        return wide
    batch, heads, length, _ = _dims(op, tensor, joined, size)
    return wide.reshape(length, batch, heads, size).permute(1, 2, 0, 3)


def _as_given(tensor: Tensor, joined: bool) -> Tensor:
    """``[B, N, S, D]`` in the layout of the inputs."""
    return tensor.permute(2, 0, 1, 3).flatten(2).contiguous() if joined else tensor


def _bias(length: int, mask: Tensor | None, params: Params, like: Tensor) -> Tensor | None:
    """What is added to the scores ``[S, S]``: for masked entries, and for keys too far back."""
    if mask is None:
        return None
    added = mask.to(like.dtype) * _MASKED
    before = int_param(NAME, params, "preTokens", 2147483647)
    if before < length:
        position = torch.arange(length)
        far = position.unsqueeze(1) - position > before
        added = added + far.to(like.dtype) * _MASKED
    return added


def _scores(query: Tensor, key: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    product = query @ key[..., : query.shape[-1]].transpose(-1, -2) * scale
    return product if bias is None else product + bias


@golden_op(NAME, infer_shape=infer_shape, kernel=ATTENTION)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Softmax attention with the maximum and the sum of each row; output 2 is a placeholder.

    Inputs: query, key, value ``[B, N, S, D]`` or ``[S, B, N * D]``; keys may be padded to more
    entries than the query. Input 6, if given, is a mask ``[S, S]`` of ones where masked; other
    optional inputs, dropout among them, are not looked at.
    """
    joined = _joined(NAME, params)
    given = [tensor_at(NAME, inputs, index) for index in range(3)]
    query, key, value = (
        _separate(NAME, tensor, joined, size, arithmetic)
        for tensor, size in zip(given, _JOINED_SIZES, strict=True)
    )
    scale = float_param(NAME, params, "scaleValue", _SCALE)
    bias = _bias(query.shape[2], optional_at(inputs, _MASK), params, query)
    groups = query.shape[1] // key.shape[1]
    maxima, sums = query.new_zeros(query.shape[:3]), query.new_zeros(query.shape[:3])
    attention = query.new_zeros(*query.shape[:3], value.shape[3])
    for head in range(query.shape[1]):
        scores = _scores(query[:, head], key[:, head // groups], scale, bias)
        highest = scores.amax(dim=-1, keepdim=True)
        powers = torch.exp(scores - highest)
        total = powers.sum(dim=-1, keepdim=True)
        maxima[:, head], sums[:, head] = highest.squeeze(-1), total.squeeze(-1)
        attention[:, head] = powers / total @ value[:, head // groups]
    outputs = (
        arithmetic.round(maxima, torch.float32),
        arithmetic.round(sums, torch.float32),
        torch.zeros_like(given[0]),
        arithmetic.round(_as_given(attention, joined), given[0].dtype),
    )
    return Result(outputs, undefined={2: torch.ones(1, dtype=torch.bool)})


@golden_op(GRAD, infer_shape=infer_shape_grad, kernel=PROBABILITIES)
def compute_grad(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``P = exp(S - max - log(sum))``, ``dS = P * (dO . v - sum(O * dO)) * scale``.

    Then ``dq = dS . k``, ``dk = dS^T . q`` with zeros for padded entries, ``dv = P^T . dO``; groups
    of query heads add up. Inputs: query, key, value, gradient of the output; mask at 7; maxima and
    sums ``[B, N, S]`` at 8 and 9; the forward result at 11. Output 3 is a placeholder. The kernel
    stores ``P`` and ``dS`` in 16 bits for the products that they enter, and nothing else.
    """
    joined = _joined(GRAD, params)
    given = [tensor_at(GRAD, inputs, index) for index in range(3)]
    query, key, value = (
        _separate(GRAD, tensor, joined, size, arithmetic)
        for tensor, size in zip(given, _JOINED_SIZES, strict=True)
    )
    gradient, forward = (
        _separate(GRAD, tensor_at(GRAD, inputs, index), joined, _JOINED_SIZES[2], arithmetic)
        for index in (3, 11)
    )
    lse = (
        arithmetic.widen(tensor_at(GRAD, inputs, 8)).reshape(query.shape[:3])
        + arithmetic.widen(tensor_at(GRAD, inputs, 9)).reshape(query.shape[:3]).log()
    ).to(query.dtype)
    scale = float_param(GRAD, params, "scaleValue", _SCALE)
    bias = _bias(query.shape[2], optional_at(inputs, _GRAD_MASK), params, query)
    groups = query.shape[1] // key.shape[1]
    d_query, d_key, d_value = (torch.zeros_like(tensor) for tensor in (query, key, value))
    store = stored(arithmetic, given[0].dtype) if arithmetic.move else None
    size = query.shape[3]
    for head in range(query.shape[1]):
        shared = head // groups
        scores = _scores(query[:, head], key[:, shared], scale, bias)
        chances = torch.exp(scores - lse[:, head].unsqueeze(-1))
        towards = gradient[:, head] @ value[:, shared].transpose(-1, -2)
        along = (forward[:, head] * gradient[:, head]).sum(dim=-1, keepdim=True)
        if store is not None:
            norms = gradient[:, head].norm(dim=-1, keepdim=True)
            norms = norms * value[:, shared].norm(dim=-1).unsqueeze(-2)
            towards = towards + noise(norms, arithmetic, store)
        d_scores = chances * (towards - along) * scale
        if store is not None:
            chances, d_scores = store(chances), store(d_scores)
        d_query[:, head] = d_scores @ key[:, shared, :, :size]
        d_key[:, shared, :, :size] += d_scores.transpose(-1, -2) @ query[:, head]
        d_value[:, shared] += chances.transpose(-1, -2) @ gradient[:, head]
    outputs = tuple(
        arithmetic.round(_as_given(found, joined), tensor.dtype)
        for found, tensor in zip((d_query, d_key, d_value), given, strict=True)
    )
    placeholder = torch.zeros_like(given[0])
    return Result((*outputs, placeholder), undefined={3: torch.ones(1, dtype=torch.bool)})
