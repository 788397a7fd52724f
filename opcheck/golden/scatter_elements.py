"""ScatterElementsV2: elements written or added at indices along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, KernelArithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    I64,
    axis_of,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import enum_param, int_param, refused, tensor_at

NAME = "ScatterElementsV2Operation"
_DTYPES = [(x, index, x) for x in (F16, F32, I8, I32, BF16, DType.UINT8) for index in (I32, I64)]


class Reduction(IntEnum):
    """Values of ``reduction``."""

    NONE = 0
    ADD = 1


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """No formal output."""
    check_count(NAME, descs, 3)
    check_dtypes(NAME, descs, _DTYPES)
    rank = len(descs[0].shape)
    check_rank(NAME, descs, 1, rank)
    check_shape(NAME, descs, 2, descs[1].shape)
    axis = axis_of(NAME, "axis", int_param(NAME, params, "axis", -1), rank)
    for dim, (size, used) in enumerate(zip(descs[0].shape, descs[1].shape, strict=True)):
        if dim != axis and used > size:
            raise refused(
                NAME,
                f"indices {list(descs[1].shape)} are larger than {list(descs[0].shape)} in "
                f"dimension {dim}",
            )
    return ()


def _kernel(params: Params) -> KernelArithmetic:
    return KernelArithmetic(moves=not params.get("reduction", Reduction.NONE))


@golden_op(NAME, infer_shape=infer_shape, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``x[i, indices[i, j]] = updates[i, j]`` (or ``+=``) along ``axis``; x is overwritten."""
    x, indices, updates = (tensor_at(NAME, inputs, index) for index in range(3))
    axis = axis_of(NAME, "axis", int_param(NAME, params, "axis", -1), x.dim())
    index = indices.long()
    if bool((index < 0).any()) or bool((index >= x.shape[axis]).any()):
        raise refused(NAME, f"an index is outside dimension {axis} of {x.shape[axis]} entries")
    if enum_param(NAME, params, "reduction", Reduction, 0) is Reduction.NONE:
        return Result((), {0: x.scatter(axis, index, updates)})
    total = arithmetic.widen(x).scatter_add(axis, index, arithmetic.widen(updates))
    return Result((), {0: arithmetic.round(total, x.dtype)})
