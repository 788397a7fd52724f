"""AllReduce: sum, product, maximum or minimum over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, collective_op
from ait_llm.opcheck.golden.ranks import check_moved, of_all_ranks, reduced, reduction_kernel
from ait_llm.opcheck.golden.shapes import F16, I8, check_count, check_dtypes, check_shape, replace
from ait_llm.opcheck.golden.support import dtype_param, enum_param, refused, tensor_at, torch_dtype

NAME = "AllReduceOperation"


class QuantType(IntEnum):
    """Values of ``quantType``."""

    NONE = 0
    PER_TENSOR = 1
    PER_CHANNEL = 2


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape; float16 when dequantised."""
    quant = enum_param(NAME, params, "quantType", QuantType, 0)
    if quant is QuantType.NONE:
        check_count(NAME, descs, 1)
        check_moved(NAME, descs)
        return (descs[0],)
    check_count(NAME, descs, 3)
    check_dtypes(NAME, descs, [(I8, F16, F16)])
    if not descs[0].shape:
        raise refused(NAME, "input 0 has no dimensions; it takes at least one")
    length = 1 if quant is QuantType.PER_TENSOR else descs[0].shape[-1]
    check_shape(NAME, descs, 1, (length,), (1, length))
    check_shape(NAME, descs, 2, (1,), (length,), (1, length))
    return (replace(descs[0], dtype=_out_dtype(params)),)


def _out_dtype(params: Params) -> DType:
    found = dtype_param(NAME, params, "outDataType")
    return F16 if found is DType.UNDEFINED else found


@collective_op(NAME, infer_shape=infer_shape, kernel=reduction_kernel)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """Reduction over ranks, the same on every rank; accumulated wide and rounded once.

    Inputs: x; quantised int8 x, then float16 scale and offset ``[1]`` or ``[n]``, which gives
    ``(sum(x_r) + offset * rankSize) * scale``.
    """
    tensors = of_all_ranks(NAME, inputs, params)
    quant = enum_param(NAME, params[0], "quantType", QuantType, 0)
    results = []
    if quant is QuantType.NONE:
        how = str(params[0].get("allReduceType", "sum"))
        total = reduced(NAME, [arithmetic.widen(tensor) for tensor in tensors], how)
        return tuple(Result((arithmetic.round(total, tensor.dtype),)) for tensor in tensors)
    total = reduced(NAME, [tensor.float() for tensor in tensors], "sum")
    for own, own_params in zip(inputs, params, strict=True):
        scale, offset = (tensor_at(NAME, own, index).float().reshape(-1) for index in (1, 2))
        y = (total + offset * len(tensors)) * scale
        results.append(Result((arithmetic.round(y, torch_dtype(_out_dtype(own_params))),)))
    return tuple(results)
