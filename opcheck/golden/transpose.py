"""Transpose: dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    I32,
    I64,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import ints_param, movable, refused, tensor_at

NAME = "TransposeOperation"


def _perm(params: Params, rank: int) -> tuple[int, ...]:
    perm = ints_param(NAME, params, "perm")
    if sorted(perm) != list(range(rank)) or not perm:
        raise refused(
            NAME,
            f"parameter perm is {list(perm)}; for {rank} dimensions it must hold each of "
            f"0 to {rank - 1} once",
        )
    return perm


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``out.shape[d] = x.shape[perm[d]]``."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, I64, BF16, I8, I32, count=1))
    x = descs[0]
    return (replace(x, [x.shape[axis] for axis in _perm(params, len(x.shape))]),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """The dimensions of x in the order of ``perm``; values are moved, never cast."""
    x = tensor_at(NAME, inputs, 0)
    return Result((movable(x).permute(_perm(params, x.dim())).contiguous().view(x.dtype),))
