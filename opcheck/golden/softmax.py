"""Softmax over one or several neighbouring axes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    axis_of,
    check_count,
    check_dtypes,
    same,
)
from ait_llm.opcheck.golden.support import ints_param, refused, tensor_at

NAME = "SoftmaxOperation"


def _axes(params: Params, rank: int) -> tuple[int, int]:
    """First and last axis of the range to normalise over."""
    given = ints_param(NAME, params, "axes")
    axes = [axis_of(NAME, "axes", axis, rank) for axis in given]
    if not axes or axes != list(range(axes[0], axes[0] + len(axes))):
        raise refused(
            NAME, f"parameter axes is {list(given)}; give one axis or neighbouring ones in order"
        )
    return axes[0], axes[-1]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of x."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, F32, BF16, count=1))
    _axes(params, len(descs[0].shape))
    return (descs[0],)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``exp(x - max) / sum(exp(x - max))`` over all axes of ``axes`` together."""
    x = tensor_at(NAME, inputs, 0)
    first, last = _axes(params, x.dim())
    flat = arithmetic.widen(x).flatten(first, last)
    y = flat.softmax(dim=first).reshape(x.shape)
    return Result((arithmetic.round(y, x.dtype),))
