"""GatherPreRmsNorm: residual rows picked by index, added and normalised."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.rms_norm import reciprocal_rms
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import float_param, refused, tensor_at

NAME = "GatherPreRmsNormOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float32 values and the sum in the dtype of x."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, [(x, x, I32, x) for x in (F16, BF16)])
    check_rank(NAME, descs, 0, 2)
    tokens, width = descs[0].shape
    check_rank(NAME, descs, 1, 2)
    check_shape(NAME, descs, 1, (descs[1].shape[0], width))
    check_shape(NAME, descs, 2, (tokens,))
    check_shape(NAME, descs, 3, (width,), (1, width))
    return replace(descs[0], dtype=F32), descs[0]


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``s = x + residual[indices]``; ``y = s / sqrt(mean(s**2) + epsilon) * gamma`` in float32.

    Inputs: x ``[T, N]``; residual ``[M, N]``; indices ``[T]``; gamma ``[N]``. The norm is taken of
    the unrounded sum; the second output is the rounded sum.
    """
    x, residual = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    indices = tensor_at(NAME, inputs, 2).long()
    if bool((indices < 0).any()) or bool((indices >= len(residual)).any()):
        raise refused(NAME, f"an index is outside the {len(residual)} residual rows")
    gamma = arithmetic.widen(tensor_at(NAME, inputs, 3)).reshape(-1)
    total = arithmetic.widen(x) + arithmetic.widen(residual[indices])
    y = total * reciprocal_rms(total, (-1,), float_param(NAME, params, "epsilon", 1e-5)) * gamma
    return Result((arithmetic.round(y, torch.float32), arithmetic.round(total, x.dtype)))
