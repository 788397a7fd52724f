"""AllGather: the tensors of all ranks stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, collective_op
from ait_llm.opcheck.golden.ranks import check_moved, of_all_ranks, rank_size
from ait_llm.opcheck.golden.shapes import check_count, replace

NAME = "AllGatherOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[rankSize, ...]``."""
    check_count(NAME, descs, 1)
    check_moved(NAME, descs)
    return (replace(descs[0], (rank_size(NAME, params), *descs[0].shape)),)


@collective_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """``out[r] = x_r``, the same on every rank. Input: x, of one shape on all ranks."""
    gathered = torch.stack(of_all_ranks(NAME, inputs, params))
    return tuple(Result((gathered,)) for _ in inputs)
