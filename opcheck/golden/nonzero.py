"""Nonzero: coordinates of the entries that are not zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import I64, check_count, check_dtypes, replace
from ait_llm.opcheck.golden.support import tensor_at

NAME = "NonzeroOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[rank, elements]`` coordinates and a count ``[1]``."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, ((I64,),))
    x = descs[0]
    return replace(x, (len(x.shape), x.elements)), replace(x, (1,))


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Coordinates in row-major order, one column each, and how many there are.

    Columns past the count are undefined.
    """
    x = tensor_at(NAME, inputs, 0)
    found = x.nonzero().t()
    coordinates = torch.zeros(x.dim(), x.numel(), dtype=torch.int64)
    coordinates[:, : found.shape[1]] = found
    beyond = torch.arange(x.numel()) >= found.shape[1]
    return Result((coordinates, torch.tensor([found.shape[1]])), undefined={0: beyond})
