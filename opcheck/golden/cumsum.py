"""Cumsum: prefix sums along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import PRODUCTS, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import BF16, F16, check_count, check_dtypes, same
from ait_llm.opcheck.golden.support import bool_param, ints_param, refused, tensor_at

NAME = "CumsumOperation"


def _axis(params: Params, rank: int) -> int:
    axes = ints_param(NAME, params, "axes")
    if len(axes) != 1 or not 0 <= axes[0] < rank:
        raise refused(NAME, f"parameter axes is {list(axes)}; give one axis of 0 to {rank - 1}")
    for key in ("exclusive", "reverse"):
        if bool_param(NAME, params, key, False):
            raise refused(NAME, f"parameter {key} is true; the library takes false only")
    return axes[0]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of x."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, BF16, count=1))
    _axis(params, len(descs[0].shape))
    return (descs[0],)


@golden_op(NAME, infer_shape=infer_shape, kernel=PRODUCTS)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Inclusive prefix sums of x along ``axes[0]``, rounded once."""
    x = tensor_at(NAME, inputs, 0)
    sums = arithmetic.widen(x).cumsum(_axis(params, x.dim()))
    return Result((arithmetic.round(sums, x.dtype),))
