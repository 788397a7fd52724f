"""RopeQConcat: rotated query heads with another part appended."""

from __future__ import annotations

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
from ait_llm.opcheck.golden.rope import rotate_half
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import tensor_at

NAME = "RopeQConcatOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[T, H, D + Dc]``."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, same(F16, BF16, count=4))
    for index, rank in enumerate((2, 2, 2, 3)):
        check_rank(NAME, descs, index, rank)
    tokens, size = descs[1].shape
    _, heads, extra = descs[3].shape
    check_shape(NAME, descs, 2, descs[1].shape)
    check_shape(NAME, descs, 0, (tokens, heads * size))
    check_shape(NAME, descs, 3, (tokens, heads, extra))
    return (replace(descs[0], (tokens, heads, size + extra)),)


@golden_op(NAME, infer_shape=infer_shape, kernel=KernelArithmetic(roundings=1))
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Half rotation of each head, then the part to append, which is not changed.

    Inputs: query ``[T, H * D]``; cos, sin ``[T, D]``; appended part ``[T, H, Dc]``.
    """
    query, appended = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 3)
    cos, sin = (arithmetic.widen(tensor_at(NAME, inputs, i)).unsqueeze(1) for i in (1, 2))
    heads = arithmetic.widen(query).reshape(*appended.shape[:2], cos.shape[-1])
    rotated = arithmetic.round(rotate_half(heads, cos, sin), query.dtype)
    return Result((torch.cat([rotated, appended.to(rotated.dtype)], dim=-1),))
