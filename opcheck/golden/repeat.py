"""Repeat: a tensor tiled along its dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import ints_param, movable, refused, tensor_at

NAME = "RepeatOperation"


def _multiples(params: Params, rank: int) -> tuple[int, ...]:
    multiples = ints_param(NAME, params, "multiples")
    if len(multiples) < max(rank, 1) or min(multiples) < 1:
        raise refused(
            NAME,
            f"parameter multiples is {list(multiples)}; give a positive number for each of "
            f"{rank} dimensions, or more for new leading ones",
        )
    return multiples


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Each dimension times its multiple; new leading dimensions have the multiple itself."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, BF16, count=1))
    shape = descs[0].shape
    multiples = _multiples(params, len(shape))
    padded = (1,) * (len(multiples) - len(shape)) + shape
    return (replace(descs[0], [size * n for size, n in zip(padded, multiples, strict=True)]),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """x, ``multiples[d]`` times along dimension d."""
    x = tensor_at(NAME, inputs, 0)
    return Result((movable(x).repeat(_multiples(params, x.dim())).view(x.dtype),))
