"""Gather: rows of a tensor by index, along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    I64,
    U32,
    check_count,
    check_dtypes,
    replace,
)
from ait_llm.opcheck.golden.support import int_param, movable, refused, tensor_at

NAME = "GatherOperation"
_DTYPES = [(x, index) for x in (F16, BF16, F32, I32, I64, U32) for index in (I32, I64, U32)]


def _axes(params: Params, x_rank: int, index_rank: int) -> tuple[int, int]:
    axis = int_param(NAME, params, "axis", 0)
    batch_dims = int_param(NAME, params, "batchDims", 0)
    if not 0 <= batch_dims <= axis < x_rank or batch_dims > index_rank:
        raise refused(
            NAME,
            f"axis {axis} and batchDims {batch_dims} do not fit tensors of {x_rank} and "
            f"{index_rank} dimensions; it takes 0 <= batchDims <= axis",
        )
    return axis, batch_dims


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``x[:axis] + indices[batchDims:] + x[axis+1:]`` in the dtype of x."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, _DTYPES)
    x, indices = descs
    axis, batch_dims = _axes(params, len(x.shape), len(indices.shape))
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise refused(
            NAME,
            f"the first {batch_dims} dimensions of {list(x.shape)} and {list(indices.shape)} "
            "differ; they are paired and must be equal",
        )
    shape = x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1 :]
    return (replace(x, shape),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``out[b, i, j, k] = x[b, i, indices[b, j], k]``; an index out of range gives zeros.

    Inputs: x of any dtype; indices int32, int64 or uint32.
    """
    x, indices = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    axis, batch_dims = _axes(params, x.dim(), indices.dim())
    batch = math.prod(x.shape[:batch_dims])
    outer = math.prod(x.shape[batch_dims:axis])
    length = x.shape[axis]
    inner = math.prod(x.shape[axis + 1 :])

    wanted = indices.to(torch.int64).reshape(batch, -1)
    inside = (wanted >= 0) & (wanted < length)
    bits = movable(x).reshape(batch, outer, length, inner)
    if length == 0:
        picked = bits.new_zeros(batch, outer, wanted.shape[1], inner)
    elif batch == 1:
        picked = bits.index_select(2, wanted[0].clamp(0, length - 1))
    else:
        rows = torch.arange(batch).unsqueeze(1)
        picked = bits.transpose(1, 2)[rows, wanted.clamp(0, length - 1)].transpose(1, 2)
    if not bool(inside.all()):
        picked = picked.masked_fill(~inside[:, None, :, None], 0)
    shape = x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1 :]
    return Result((picked.reshape(shape).view(x.dtype),))
