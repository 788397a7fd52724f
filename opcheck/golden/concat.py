"""Concat: two tensors joined along one dimension."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    axis_of,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import int_param, movable, refused, tensor_at

NAME = "ConcatOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The shape of x with the length along ``concatDim`` of both."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, same(F16, BF16, count=2))
    x, y = descs
    axis = axis_of(NAME, "concatDim", int_param(NAME, params, "concatDim", 0), len(x.shape))
    joined = list(x.shape)
    if len(y.shape) == len(x.shape):
        joined[axis] += y.shape[axis]
    rest = [list(shape[:axis] + shape[axis + 1 :]) for shape in (x.shape, y.shape)]
    if len(y.shape) != len(x.shape) or rest[0] != rest[1]:
        raise refused(
            NAME,
            f"shapes {list(x.shape)} and {list(y.shape)} differ outside dimension {axis}; "
            "only that one may differ",
        )
    return (replace(x, joined),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """x, then y along ``concatDim``."""
    x, y = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    axis = axis_of(NAME, "concatDim", int_param(NAME, params, "concatDim", 0), x.dim())
    return Result((torch.cat([movable(x), movable(y)], dim=axis).view(x.dtype),))
