"""RopeGrad: gradients of query and key through the rotary embedding, as the kernel forms them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, KernelArithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    F16,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    same,
)
from ait_llm.opcheck.golden.slots import segments
from ait_llm.opcheck.golden.support import ints_param, refused, tensor_at

NAME = "RopeGradOperation"
_HEAD = 128


def _lengths(params: Params) -> tuple[int, ...]:
    """Sequence lengths; dumps name them ``c_qSeqLen``."""
    lengths = ints_param(NAME, params, "c_qSeqLen") or ints_param(NAME, params, "qSeqLen")
    if not lengths or min(lengths) < 1:
        raise refused(NAME, f"parameter c_qSeqLen is {list(lengths)}; give positive lengths")
    return lengths


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Gradients keep their shapes."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, same(F16, count=4))
    for index in range(4):
        check_rank(NAME, descs, index, 2)
    lengths = _lengths(params)
    check_shape(NAME, descs, 2, (descs[2].shape[0], _HEAD))
    check_shape(NAME, descs, 3, descs[2].shape)
    for index in (0, 1):
        tokens, width = descs[index].shape
        if tokens != sum(lengths) or width % _HEAD:
            raise refused(
                NAME,
                f"gradient {list(descs[index].shape)} must have {sum(lengths)} tokens and heads "
                f"of {_HEAD}",
            )
    if max(lengths) > descs[2].shape[0]:
        raise refused(NAME, f"the tables have {descs[2].shape[0]} rows for {max(lengths)} tokens")
    return descs[0], descs[1]


# The device's kernel adds cosine and sine in float16 before it multiplies.
@golden_op(NAME, infer_shape=infer_shape, kernel=KernelArithmetic(roundings=1))
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``g * (cos + cat(sin2, -sin1))`` for every head of 128.

    This is what the kernel computes; the derivative of a half rotation would swap the halves of g.
    Inputs: gradients of query and key ``[T, heads * 128]``; cos, sin ``[S, 128]``, whose first rows
    serve each sequence.
    """
    cos, sin = (arithmetic.widen(tensor_at(NAME, inputs, index)) for index in (2, 3))
    first, second = sin.chunk(2, dim=-1)
    table = cos + torch.cat([second, -first], dim=-1)
    _, position = segments(torch.tensor(_lengths(params)))
    factor = table[position].unsqueeze(1)
    outputs = []
    for index in (0, 1):
        gradient = tensor_at(NAME, inputs, index)
        heads = arithmetic.widen(gradient).reshape(len(gradient), -1, _HEAD)
        outputs.append(arithmetic.round((heads * factor).reshape(gradient.shape), gradient.dtype))
    return Result(tuple(outputs))
