"""GroupedMatmulWithRouting: the two matrix products of a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.products import integer_matmul, wide_matmul
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    dtype_param,
    enum_param,
    int_param,
    refused,
    tensor_at,
    torch_dtype,
)

NAME = "GroupedMatmulWithRoutingOperation"


class Direction(IntEnum):
    """Values of ``moeType``."""

    UP = 0
    DOWN = 1


def _direction(params: Params) -> Direction:
    return enum_param(NAME, params, "moeType", Direction, 0)


def _weight_shape(weight: TensorDesc) -> tuple[int, int, int]:
    """Experts, rows and columns of the stored weight, NZ blocks joined."""
    shape = weight.shape
    if len(shape) == 4:
        return shape[0], shape[2], shape[1] * shape[3]
    return shape[0], shape[1], shape[2]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[rows * topK, N]`` upwards and ``[rows / topK, N]`` downwards."""
    out_dtype = dtype_param(NAME, params, "outDataType")
    quantised = out_dtype is not DType.UNDEFINED
    check_count(NAME, descs, 6 if quantised else 4)
    rows = [(I8, I8, I32, I32, F32, F32)] if quantised else [(x, x, I32, I32) for x in (F16, BF16)]
    check_dtypes(NAME, descs, rows)
    if quantised and out_dtype not in (F16, BF16):
        raise refused(NAME, f"outDataType is {out_dtype.label}; it takes float16 or bf16")
    check_rank(NAME, descs, 0, 2)
    check_rank(NAME, descs, 1, 3, 4)
    tokens, inner = descs[0].shape
    experts, stored, columns = _weight_shape(descs[1])
    if bool_param(NAME, params, "transposeB", True):
        stored, columns = columns, stored
    if stored != inner:
        raise refused(NAME, f"x has {inner} and the weight {stored} entries along the summed one")
    top = int_param(NAME, params, "topK", 0)
    up = _direction(params) is Direction.UP
    if top < 1 or (not up and tokens % top):
        raise refused(NAME, f"topK is {top}; it takes a positive divisor of the {tokens} rows")
    check_shape(NAME, descs, 2, (experts,))
    check_shape(NAME, descs, 3, (tokens * top if up else tokens,))
    if quantised:
        check_shape(NAME, descs, 4, (experts, columns))
        check_shape(NAME, descs, 5, (tokens,))
    shape = (tokens * top if up else tokens // top, columns)
    return (TensorDesc(out_dtype if quantised else descs[0].dtype, shape, FORMAT_ND),)


def _scale(inputs: Sequence[Tensor | None], index: int) -> Tensor | None:
    return tensor_at(NAME, inputs, index).float() if len(inputs) > index else None


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Expert e owns the positions of the routing table from ``ends[e - 1]`` to ``ends[e]``.

    Upwards ``y[p] = x[index[p]] . W_e``; downwards ``y[index[p]] += x[p] . W_e``, summed wide and
    rounded once. Inputs: x; weight ``[E, K, N]`` (transposeB ``[E, N, K]``, NZ too); ends
    ``[E]``, which count on from expert to expert; indices ``[positions]``; for int8 the scales per
    expert and column ``[E, N]`` and per row of x. Positions past the last end are undefined
    upwards. Source: the device's kernel.
    """
    x, weight = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    ends, indices = (tensor_at(NAME, inputs, index).reshape(-1).long() for index in (2, 3))
    weight = nz_to_nd(weight) if weight.dim() == 4 else weight
    if bool_param(NAME, params, "transposeB", True):
        weight = weight.transpose(1, 2)
    up = _direction(params) is Direction.UP
    quantised = dtype_param(NAME, params, "outDataType") is not DType.UNDEFINED
    bounds = [0, *ends.tolist()]
    if bounds != sorted(bounds) or bounds[-1] > len(indices):
        raise refused(
            NAME,
            f"the ends of experts {bounds[1:]} do not fit {len(indices)} positions; they count on "
            "from expert to expert",
        )
    rows = x[indices] if up else x
    column_scale, row_scale = _scale(inputs, 4), _scale(inputs, 5)
    parts = []
    for expert, own in enumerate(map(slice, bounds, bounds[1:])):
        if quantised and column_scale is not None and row_scale is not None:
            part = integer_matmul(rows[own], weight[expert]).float()
            factor = (row_scale[indices] if up else row_scale)[own]
            parts.append(part * factor.unsqueeze(-1) * column_scale[expert])
        else:
            parts.append(wide_matmul(rows[own], weight[expert], arithmetic))
    y = torch.cat(parts)
    top = max(1, int_param(NAME, params, "topK", 1))
    if up:
        total = y.new_zeros(len(indices), y.shape[1])
        total[: len(y)] = y
    else:
        total = y.new_zeros(len(x) // top, y.shape[1]).index_add(0, indices[: len(y)], y)
    out_dtype = dtype_param(NAME, params, "outDataType")
    output = arithmetic.round(total, torch_dtype(out_dtype) if quantised else x.dtype)
    beyond = torch.arange(len(output)).unsqueeze(1) >= len(y)
    return Result((output,), undefined={0: beyond} if up and len(y) < len(output) else {})
