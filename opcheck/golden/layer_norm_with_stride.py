"""LayerNormWithStride: layer normalisation of a strided view."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.layer_norm import layer_norm
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I64,
    check_count,
    check_dtypes,
    check_shape,
)
from ait_llm.opcheck.golden.support import float_param, nested_params, refused, tensor_at

NAME = "LayerNormWithStrideOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of x, contiguous."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, [(x, x, x, I64, I64) for x in (F16, BF16)])
    x, gamma = descs[0].shape, descs[1].shape
    if not gamma or x[len(x) - len(gamma) :] != gamma:
        raise refused(
            NAME, f"gamma has shape {list(gamma)}; it must be the trailing part of {list(x)}"
        )
    check_shape(NAME, descs, 2, gamma)
    check_shape(NAME, descs, 3, (len(x),))
    check_shape(NAME, descs, 4, (1,))
    return (descs[0],)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Layer normalisation over the dimensions of gamma.

    Inputs: x, of which the storage is viewed; gamma; beta; strides of the view, one per dimension
    of x; offset ``[1]``, both in elements.
    """
    x = tensor_at(NAME, inputs, 0)
    strides = tensor_at(NAME, inputs, 3).tolist()
    offset = int(tensor_at(NAME, inputs, 4).reshape(-1)[0])
    last = offset + sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True))
    if last >= x.numel() and x.numel():
        raise refused(NAME, f"strides {strides} from {offset} reach outside {x.numel()} elements")
    viewed = x.reshape(-1).as_strided(x.shape, strides, offset)
    gamma, beta = (arithmetic.widen(tensor_at(NAME, inputs, index)) for index in (1, 2))
    own = nested_params(NAME, params, "normParam")
    epsilon = float_param(NAME, own, "epsilon", 1e-5)
    y = layer_norm(arithmetic.widen(viewed), gamma, beta, range(-gamma.dim(), 0), epsilon)
    return Result((arithmetic.round(y, x.dtype),))
