"""AllToAll: equal parts exchanged between all ranks, plain or transposed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, collective_op
from ait_llm.opcheck.golden.ranks import check_moved, of_all_ranks, rank_size
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    check_count,
    check_dtypes,
    check_rank,
    replace,
)
from ait_llm.opcheck.golden.support import bool_param, refused

NAME = "AllToAllOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape; transposed ``[h * rankSize, w / rankSize]``."""
    check_count(NAME, descs, 1)
    size = rank_size(NAME, params)
    shape = descs[0].shape
    if not bool_param(NAME, params, "transpose", False):
        check_moved(NAME, descs)
        return (descs[0],)
    check_dtypes(NAME, descs, [(F16,), (BF16,), (I8,)])
    check_rank(NAME, descs, 0, 2)
    if shape[1] % size:
        raise refused(NAME, f"input 0 has shape {list(shape)}; its columns must divide by {size}")
    return (replace(descs[0], (shape[0] * size, shape[1] // size)),)


def _recover(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """Only the transposed exchange changes the shape."""
    if "transpose" in params or not inputs or not outputs:
        return params
    x, y = inputs[0], outputs[0]
    return {**params, "transpose": x is not None and y is not None and x.shape != y.shape}


@collective_op(NAME, infer_shape=infer_shape, recover=_recover, kernel=MOVES)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """Rank i receives part i of every rank's tensor, in rank order.

    Parts are consecutive elements; transposed, they are column ranges of ``[h, w]``, one below the
    other. Input: x.
    """
    tensors = of_all_ranks(NAME, inputs, params)
    size, x = len(tensors), tensors[0]
    if x.numel() % size:
        raise refused(NAME, f"{x.numel()} elements do not divide into parts for {size} ranks")
    if bool_param(NAME, params[0], "transpose", False):
        if x.dim() != 2 or x.shape[1] % size:
            raise refused(NAME, f"columns of {list(x.shape)} do not divide by {size} ranks")
        columns = torch.stack(tensors).reshape(size, x.shape[0], size, -1)
        parts = columns.permute(2, 0, 1, 3).reshape(size, x.shape[0] * size, -1)
        return tuple(Result((part.clone(),)) for part in parts)
    chunks = torch.stack(tensors).reshape(size, size, -1).transpose(0, 1)
    return tuple(Result((part.reshape(x.shape),)) for part in chunks)
