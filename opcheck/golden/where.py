"""Where: one of two tensors, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    F16,
    I8,
    broadcast,
    check_count,
    check_dtypes,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "WhereOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """What x and y broadcast to; the condition broadcasts to that."""
    check_count(NAME, descs, 3)
    check_dtypes(NAME, descs, ((I8, F16, F16),))
    condition, x, y = descs
    shape = broadcast(NAME, x.shape, y.shape)
    if broadcast(NAME, condition.shape, shape) != shape:
        raise refused(
            NAME,
            f"condition {list(condition.shape)} is larger than {list(shape)} of x and y; it must "
            "broadcast",
        )
    return (replace(x, shape),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """x where the condition is not zero, else y; bits are kept."""
    condition, x, y = (tensor_at(NAME, inputs, index) for index in range(3))
    bits = torch.int16
    return Result((torch.where(condition != 0, x.view(bits), y.view(bits)).view(x.dtype),))
