"""Slice: a box out of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    U32,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import ints_param, movable, refused, tensor_at

NAME = "SliceOperation"


def _box(params: Params, shape: Sequence[int]) -> list[tuple[int, int]]:
    """Start and length per dimension.

    A negative offset counts from the end; a length of -1 reaches to the end.
    """
    offsets = ints_param(NAME, params, "offsets")
    sizes = ints_param(NAME, params, "size")
    if not len(offsets) == len(sizes) == len(shape):
        raise refused(
            NAME,
            f"offsets {list(offsets)} and size {list(sizes)} need one entry for each dimension "
            f"of {list(shape)}",
        )
    box = []
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        start = offset + shape[dim] if offset < 0 else offset
        length = shape[dim] - start if size == -1 else size
        if start < 0 or length < 0 or start + length > shape[dim]:
            raise refused(
                NAME,
                f"offset {offset} and size {size} reach outside dimension {dim} of "
                f"{shape[dim]} entries",
            )
        box.append((start, length))
    return box


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The size of the box."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, F32, I8, DType.BOOL, I32, U32, BF16, count=1))
    return (replace(descs[0], [length for _, length in _box(params, descs[0].shape)]),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """The box of ``size`` entries at ``offsets``."""
    x = tensor_at(NAME, inputs, 0)
    piece = movable(x)
    for dim, (start, length) in enumerate(_box(params, x.shape)):
        piece = piece.narrow(dim, start, length)
    return Result((piece.contiguous().view(x.dtype),))
