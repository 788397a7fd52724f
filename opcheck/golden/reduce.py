"""Reduce: maximum, minimum or sum over axes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I32,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import enum_param, ints_param, refused, tensor_at

NAME = "ReduceOperation"


class ReduceType(IntEnum):
    """Values of ``reduceType``."""

    MAX = 1
    MIN = 2
    SUM = 3


def _axes(params: Params, rank: int) -> tuple[int, ...]:
    axes = ints_param(NAME, params, "axis")
    if not axes or len(set(axes)) != len(axes) or not all(0 <= axis < rank for axis in axes):
        raise refused(
            NAME,
            f"parameter axis is {list(axes)}; give distinct axes of 0 to {rank - 1}",
        )
    return axes


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The shape without the axes."""
    check_count(NAME, descs, 1)
    kind = enum_param(NAME, params, "reduceType", ReduceType, 0)
    dtypes = (F16, BF16) if kind is ReduceType.SUM else (I32, BF16)
    check_dtypes(NAME, descs, same(*dtypes, count=1))
    shape = descs[0].shape
    axes = _axes(params, len(shape))
    return (replace(descs[0], [size for dim, size in enumerate(shape) if dim not in axes]),)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Maximum, minimum or sum of x over ``axis``; extremes are exact."""
    x = tensor_at(NAME, inputs, 0)
    axes = _axes(params, x.dim())
    kind = enum_param(NAME, params, "reduceType", ReduceType, 0)
    if kind is ReduceType.SUM:
        total = arithmetic.widen(x).sum(dim=axes)
        return Result((arithmetic.round(total, x.dtype),))
    if x.numel() == 0:
        raise refused(NAME, f"x has shape {list(x.shape)}; no entry is the largest of none")
    extreme = torch.amax if kind is ReduceType.MAX else torch.amin
    return Result((extreme(x, dim=axes),))
