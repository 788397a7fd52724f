"""CohereLayerNorm: layer normalisation of each head with its own weights and no bias."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.layer_norm import layer_norm
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    same,
)
from ait_llm.opcheck.golden.support import float_param, tensor_at

NAME = "CohereLayerNormOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of x."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, same(F16, BF16, count=2))
    check_rank(NAME, descs, 0, 3, 4)
    check_shape(NAME, descs, 1, descs[0].shape[-2:])
    return (descs[0],)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``weight * (x - mean) / sqrt(var + epsilon)`` over the last dimension.

    Inputs: x ``[..., H, D]``; weight ``[H, D]``.
    """
    x, weight = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    wide = arithmetic.widen(weight)
    epsilon = float_param(NAME, params, "epsilon", 1e-5)
    y = layer_norm(arithmetic.widen(x), wide, wide.new_zeros(1), (-1,), epsilon)
    return Result((arithmetic.round(y, x.dtype),))
