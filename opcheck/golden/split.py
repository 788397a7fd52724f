"""Split: a tensor cut into two or three along one dimension."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I64,
    axis_of,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import int_param, ints_param, movable, refused, tensor_at

NAME = "SplitOperation"


def _pieces(params: Params, shape: Sequence[int]) -> tuple[int, list[int]]:
    """The axis and the sizes along it."""
    axis = axis_of(NAME, "splitDim", int_param(NAME, params, "splitDim", 0), len(shape))
    number = int_param(NAME, params, "splitNum", 2)
    if number not in (2, 3):
        raise refused(NAME, f"parameter splitNum is {number}; it takes 2 or 3")
    sizes = list(ints_param(NAME, params, "splitSizes"))
    length = shape[axis]
    if not sizes:
        if length % number:
            raise refused(
                NAME,
                f"dimension {axis} has {length} entries, which {number} does not divide; "
                "give splitSizes",
            )
        return axis, [length // number] * number
    if len(sizes) != number or min(sizes) < 1 or sum(sizes) != length:
        raise refused(
            NAME,
            f"parameter splitSizes is {sizes}; it takes {number} positive sizes that add up to "
            f"{length}",
        )
    return axis, sizes


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """One description per piece."""
    check_count(NAME, descs, 1)
    x = descs[0]
    axis, sizes = _pieces(params, x.shape)
    dtypes = (F16, I64, BF16) if len(sizes) == 2 else (F16, BF16)
    check_dtypes(NAME, descs, same(*dtypes, count=1))
    return tuple(replace(x, [*x.shape[:axis], size, *x.shape[axis + 1 :]]) for size in sizes)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Pieces of ``splitSizes`` entries, or of equal size, along ``splitDim``."""
    x = tensor_at(NAME, inputs, 0)
    axis, sizes = _pieces(params, x.shape)
    pieces = torch.split(movable(x), sizes, dim=axis)
    return Result(tuple(piece.contiguous().view(x.dtype) for piece in pieces))
