"""RmsNormBackward: gradients of RmsNorm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, KernelArithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    check_count,
    check_dtypes,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "RmsNormBackwardOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The gradient of x in its dtype and that of gamma in float32."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, [(x, x, F32, x) for x in (F32, F16, BF16)])
    shape, gamma = descs[1].shape, descs[3].shape
    check_shape(NAME, descs, 0, shape)
    if not gamma or shape[len(shape) - len(gamma) :] != gamma:
        raise refused(
            NAME, f"gamma has shape {list(gamma)}; it must be the trailing part of {list(shape)}"
        )
    lead = shape[: len(shape) - len(gamma)]
    check_shape(NAME, descs, 2, lead + (1,) * len(gamma))
    return descs[1], replace(descs[3], dtype=F32)


@golden_op(NAME, infer_shape=infer_shape, kernel=KernelArithmetic(roundings=1))
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``dx = g * rstd - mean(g * rstd**3 * x) * x`` with ``g = dy * gamma``.

    The gradient of gamma sums ``dy * (x * rstd)`` over rows, the product in brackets rounded to the
    dtype of gamma. Inputs: dy, x ``[..., N]``; rstd ``[..., 1]`` float32; gamma ``[N]``.
    """
    dy, x, rstd, gamma = (tensor_at(NAME, inputs, index) for index in range(4))
    wide_x, wide_dy = arithmetic.widen(x), arithmetic.widen(dy)
    scale = arithmetic.widen(rstd).to(wide_x.dtype)
    dims = tuple(range(-gamma.dim(), 0))
    weighted = wide_dy * arithmetic.widen(gamma)
    mean = (weighted * scale**3 * wide_x).mean(dim=dims, keepdim=True)
    dx = weighted * scale - mean * wide_x
    normalised = arithmetic.widen((wide_x * scale).to(gamma.dtype))
    products = (wide_dy * normalised).reshape(-1, *gamma.shape)
    return Result(
        (
            arithmetic.round(dx, x.dtype),
            arithmetic.round(products.sum(dim=0), torch.float32),
        )
    )
