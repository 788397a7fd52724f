"""Onehot: a one at each index along a new axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    I32,
    I64,
    axis_of,
    check_count,
    check_dtypes,
    check_shape,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import int_param, refused, tensor_at

NAME = "OnehotOperation"


def _axis_and_depth(params: Params, rank: int) -> tuple[int, int]:
    axis = axis_of(NAME, "axis", int_param(NAME, params, "axis", 0), rank + 1)
    depth = int_param(NAME, params, "depth", 0)
    if depth < 0:
        raise refused(NAME, f"parameter depth is {depth}; it takes 0 or more")
    return axis, depth


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The shape of the indices with ``depth`` inserted at ``axis``."""
    check_count(NAME, descs, 3)
    check_dtypes(NAME, descs, same(I32, I64, count=3))
    check_shape(NAME, descs, 1, (1,))
    check_shape(NAME, descs, 2, (1,))
    shape = descs[0].shape
    axis, depth = _axis_and_depth(params, len(shape))
    return (replace(descs[0], (*shape[:axis], depth, *shape[axis:])),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``one`` where the coordinate along the axis equals the index, else ``zero``.

    Inputs: indices; one ``[1]``; zero ``[1]``. Indices outside ``[0, depth)`` give zeros.
    """
    indices = tensor_at(NAME, inputs, 0)
    one, zero = tensor_at(NAME, inputs, 1), tensor_at(NAME, inputs, 2)
    axis, depth = _axis_and_depth(params, indices.dim())
    places = torch.arange(depth, dtype=indices.dtype)
    places = places.reshape([-1] + [1] * (indices.dim() - axis))
    return Result((torch.where(indices.unsqueeze(axis) == places, one[0], zero[0]),))
