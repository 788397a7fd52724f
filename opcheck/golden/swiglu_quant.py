"""SwigluQuant: SwiGLU and dynamic quantisation of each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import QUANTISES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.quantise import dynamic_quant_direct
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    check_count,
    check_dtypes,
    check_rank,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import int_param, refused, tensor_at

NAME = "SwigluQuantOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[T, N]`` int8 and ``[T]`` float32 for ``[T, 2 * N]``."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, BF16, count=1))
    check_rank(NAME, descs, 0, 2)
    if int_param(NAME, params, "quantType", 0) != 0:
        raise refused(NAME, "parameter quantType takes 0, per token")
    tokens, width = descs[0].shape
    return replace(descs[0], (tokens, width // 2), I8), replace(descs[0], (tokens,), F32)


@golden_op(NAME, infer_shape=infer_shape, kernel=QUANTISES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``u = a * sigmoid(a) * b`` of the halves of a row, quantised so that ``max|u|`` is 127."""
    gate, value = arithmetic.widen(tensor_at(NAME, inputs, 0)).chunk(2, dim=-1)
    product = gate * torch.sigmoid(gate) * value
    return Result(dynamic_quant_direct(product))
