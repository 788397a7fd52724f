"""Rope: rotary position embedding of query and key."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Result,
    golden_op,
)
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
)
from ait_llm.opcheck.golden.support import int_param, refused, tensor_at

NAME = "RopeOperation"
_DTYPES = [
    (x, x, table, table, length)
    for x, table in ((F16, F16), (F16, F32), (BF16, BF16))
    for length in (I32, U32)
]
_HEAD_DIMS = range(16, 4097)


def _hidden(shape: Sequence[int]) -> tuple[int, int]:
    """Tokens and features of ``[T, h]`` or ``[B, S, H, D]``."""
    split = len(shape) // 2
    return math.prod(shape[:split]), math.prod(shape[split:])


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Query and key keep their shapes."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, _DTYPES)
    for index, ranks in enumerate(((2, 4), (2, 4), (2,), (2,), (1,))):
        check_rank(NAME, descs, index, *ranks)
    query, key, cos, _, _ = descs
    check_shape(NAME, descs, 3, cos.shape)
    head_dim = cos.shape[1]
    if head_dim not in _HEAD_DIMS:
        raise refused(NAME, f"cos has {head_dim} columns; it takes 16 to 4096")
    (query_tokens, query_hidden), (key_tokens, key_hidden) = (
        _hidden(query.shape),
        _hidden(key.shape),
    )
    if query_tokens != key_tokens:
        raise refused(
            NAME, f"query has {query_tokens} tokens and key {key_tokens}; they must be equal"
        )
    if key_hidden == 0 or query_hidden % key_hidden or key_hidden % head_dim:
        raise refused(
            NAME,
            f"hidden sizes {query_hidden} and {key_hidden} with {head_dim} columns of cos; each "
            "must be a multiple of the next",
        )
    coefficient = int_param(NAME, params, "rotaryCoeff", 4)
    if coefficient not in (2, 4, head_dim, head_dim // 2) or head_dim % coefficient:
        raise refused(NAME, f"parameter rotaryCoeff is {coefficient}; it takes 2, 4 or {head_dim}")
    if int_param(NAME, params, "cosFormat", 0) not in (0, 1):
        raise refused(NAME, "parameter cosFormat takes 0 or 1")
    return query, key


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x * cos + cat(-x2, x1) * sin`` with x1 and x2 the halves of the last dimension."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def rotate(x: Tensor, cos: Tensor, sin: Tensor, coefficient: int) -> Tensor:
    """Rotate heads ``[T, H, D]`` by tables ``[T or 1, D]``, each entry with its own column.

    The kernel turns the halves of groups of ``2 D / coefficient`` neighbours: of whole heads for 2,
    of each half of a head for 4, pairs for D.

    Args:
        x: wide heads.
        cos: cosine table.
        sin: sine table.
        coefficient: see above.
    """
    groups = max(1, coefficient // 2)
    parts = (
        table.reshape(*table.shape[:-1], groups, table.shape[-1] // groups)
        for table in (x, cos.unsqueeze(1), sin.unsqueeze(1))
    )
    return rotate_half(*parts).flatten(-2)


@golden_op(NAME, infer_shape=infer_shape, kernel=KernelArithmetic(roundings=1))
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Rotate every head of query and key; each has its own number of heads.

    Inputs: query, key ``[T, heads * D]`` or ``[B, S, H, D]``; cos, sin ``[T or 1, D]``, float32
    allowed beside float16; sequence lengths (not needed: tables are per token).
    """
    cos = arithmetic.widen(tensor_at(NAME, inputs, 2))
    sin = arithmetic.widen(tensor_at(NAME, inputs, 3))
    head_dim = cos.shape[-1]
    cos, sin = cos.reshape(-1, head_dim), sin.reshape(-1, head_dim)
    coefficient = int_param(NAME, params, "rotaryCoeff", 4)
    rotated = []
    for index in (0, 1):
        x = tensor_at(NAME, inputs, index)
        tokens, hidden = _hidden(x.shape)
        if len(cos) not in (1, tokens):
            raise refused(NAME, f"cos has {len(cos)} rows for {tokens} tokens; give one for each")
        heads = arithmetic.widen(x).reshape(tokens, hidden // head_dim, head_dim)
        y = rotate(heads, cos, sin, coefficient).reshape(x.shape)
        rotated.append(arithmetic.round(y, x.dtype))
    return Result(tuple(rotated))
