"""FaUpdate: partial attention outputs merged by their log-sum-exp."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    F32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import int_param, tensor_at

NAME = "FaUpdateOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[N, D]``."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, ((F32, F32),))
    check_rank(NAME, descs, 0, 2)
    check_rank(NAME, descs, 1, 3)
    parts, rows = int_param(NAME, params, "sp", 1), descs[0].shape[1]
    check_shape(NAME, descs, 0, (parts, rows))
    check_shape(NAME, descs, 1, (parts, rows, descs[1].shape[2]))
    return (replace(descs[1], descs[1].shape[1:]),)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``sum_s softmax(lse, 0)[s] * out[s]``, stable for large values.

    Inputs: log-sum-exp ``[sp, N]``; partial outputs ``[sp, N, D]``.
    """
    weights = arithmetic.widen(tensor_at(NAME, inputs, 0)).softmax(dim=0)
    merged = (weights.unsqueeze(-1) * arithmetic.widen(tensor_at(NAME, inputs, 1))).sum(dim=0)
    return Result((arithmetic.round(merged, torch.float32),))
