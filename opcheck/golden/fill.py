"""Fill: a constant, everywhere or where a mask says so."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    I32,
    broadcast,
    check_count,
    check_dtypes,
)
from ait_llm.opcheck.golden.support import bool_param, ints_param, refused, tensor_at

NAME = "FillOperation"


def _value(params: Params) -> float:
    values = params.get("value", ())
    if not isinstance(values, (list, tuple)) or not values:
        raise refused(NAME, f"parameter value is {values!r}; give a list with one number")
    return float(values[0])


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The description of x, or float16 of ``outDim`` without a mask."""
    _value(params)
    if not bool_param(NAME, params, "withMask", True):
        check_count(NAME, descs, 0)
        shape = ints_param(NAME, params, "outDim")
        if not shape or min(shape) < 1:
            raise refused(NAME, f"parameter outDim is {list(shape)}; give positive dimensions")
        return (TensorDesc(F16, shape),)
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, [(x, mask) for x in (F16, I32, BF16) for mask in (DType.BOOL, I8)])
    x, mask = descs
    if broadcast(NAME, x.shape, mask.shape) != x.shape:
        raise refused(
            NAME, f"mask {list(mask.shape)} is larger than x {list(x.shape)}; it must broadcast"
        )
    return (x,)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """x with the first ``value`` where the mask is set, or a tensor of it in float16."""
    value = _value(params)
    if not bool_param(NAME, params, "withMask", True):
        shape = ints_param(NAME, params, "outDim")
        return Result((torch.full(shape, value, dtype=torch.float16),))
    x, mask = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    constant = torch.tensor(value).to(x.dtype)
    return Result((torch.where(mask != 0, constant, x),))
