"""IndexAdd: slices added to a tensor at given indices."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import PRODUCTS, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I32,
    axis_of,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import enum_param, int_param, refused, tensor_at

NAME = "IndexAddOperation"


class IndexType(IntEnum):
    """Values of ``indexType``."""

    ADD = 1
    ADD_VALID = 2


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The tensor keeps its description."""
    kind = enum_param(NAME, params, "indexType", IndexType, 0)
    check_count(NAME, descs, 4)
    check_dtypes(
        NAME,
        descs,
        [(x, I32, x, x if kind is IndexType.ADD else I32) for x in (F16, BF16)],
    )
    shape = descs[0].shape
    axis = axis_of(NAME, "axis", int_param(NAME, params, "axis", 0), len(shape))
    if kind is IndexType.ADD_VALID and (axis != 0 or len(shape) != 2):
        raise refused(NAME, f"ADD_VALID takes axis 0 of 2 dimensions, not {axis} of {list(shape)}")
    check_rank(NAME, descs, 1, 1)
    check_shape(NAME, descs, 2, (*shape[:axis], descs[1].shape[0], *shape[axis + 1 :]))
    check_shape(NAME, descs, 3, (1,))
    return (descs[0],)


@golden_op(NAME, infer_shape=infer_shape, kernel=PRODUCTS)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``x[index[i]] += alpha * updates[i]`` along ``axis``; repeated indices add up.

    Inputs: x (overwritten); indices ``[n]``; updates; alpha ``[1]``, for ADD_VALID how many
    updates count, with alpha 1.
    """
    x, indices, updates, last = (tensor_at(NAME, inputs, index) for index in range(4))
    axis = axis_of(NAME, "axis", int_param(NAME, params, "axis", 0), x.dim())
    index = indices.reshape(-1).long()
    scaled = arithmetic.widen(updates)
    if enum_param(NAME, params, "indexType", IndexType, 0) is IndexType.ADD:
        scaled = scaled * arithmetic.widen(last)
    else:
        count = int(last.reshape(-1)[0])
        if not 0 <= count <= len(index):
            raise refused(NAME, f"{count} valid indices; the list has {len(index)}")
        index, scaled = index[:count], scaled[:count]
    if bool((index < 0).any()) or bool((index >= x.shape[axis]).any()):
        raise refused(NAME, f"an index is outside dimension {axis} of {x.shape[axis]} entries")
    total = arithmetic.round(arithmetic.widen(x).index_add(axis, index, scaled), x.dtype)
    return Result((total,), {0: total})
