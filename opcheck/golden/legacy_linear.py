"""Matmul, LinearQuant, LinearActivation and LinearActivationQuant of older libraries.

The current library has them no more; old dumps still name them. Their output is float16.
``transposeB`` of the two activation forms is inverted: false means that the weight is ``[N, K]``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.activation import ActivationType, GeluMode, apply
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.linear import compute as compute_linear
from ait_llm.opcheck.golden.linear import infer_shape as infer_linear
from ait_llm.opcheck.golden.products import integer_matmul
from ait_llm.opcheck.golden.shapes import F16, I8, check_count, check_dtypes, replace
from ait_llm.opcheck.golden.support import bool_param, enum_param, tensor_at

MATMUL = "MatmulOperation"
QUANT = "LinearQuantOperation"
ACTIVATION = "LinearActivationOperation"
ACTIVATION_QUANT = "LinearActivationQuantOperation"


def _linear_params(op: str, params: Params, **changes: object) -> Params:
    """The parameters of Linear for the same product."""
    inverted = op in (ACTIVATION, ACTIVATION_QUANT)
    transpose_b = bool_param(op, params, "transposeB", not inverted)
    return {
        "transposeA": bool_param(op, params, "transposeA", False),
        "transposeB": transpose_b != inverted,
        "hasBias": op != MATMUL and bool_param(op, params, "hasBias", True),
        **changes,
    }


def _infer(op: str, descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The shape that Linear gives, as float16."""
    quantised = op in (QUANT, ACTIVATION_QUANT)
    changes = {"outDataType": F16.code} if quantised else {}
    if op == MATMUL and descs and descs[0].dtype is I8:
        check_count(op, descs, 2)
        check_dtypes(op, descs, [(I8, I8)])
        descs = [replace(desc, dtype=F16) for desc in descs]
    found = infer_linear(descs, _linear_params(op, params, **changes))
    return (replace(found[0], dtype=F16),)


def infer_shape_matmul(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float16 ``[..., M, N]``."""
    return _infer(MATMUL, descs, params)


def infer_shape_quant(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float16 ``[..., M, N]``."""
    return _infer(QUANT, descs, params)


def infer_shape_activation(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float16 ``[..., M, N]``."""
    return _infer(ACTIVATION, descs, params)


def infer_shape_activation_quant(
    descs: Sequence[TensorDesc], params: Params
) -> tuple[TensorDesc, ...]:
    """float16 ``[..., M, N]``."""
    return _infer(ACTIVATION_QUANT, descs, params)


def _product(
    op: str,
    inputs: Sequence[Tensor | None],
    params: Params,
    arithmetic: Arithmetic,
    **changes: object,
) -> Tensor:
    given = _linear_params(op, params, **changes)
    return compute_linear(inputs, given, arithmetic).outputs[0]


def _activated(op: str, y: Tensor, params: Params, arithmetic: Arithmetic) -> Result:
    kind = enum_param(op, params, "activationFuncType", ActivationType, ActivationType.FAST_GELU)
    wide = arithmetic.widen(y.to(torch.float16))
    result = apply(kind, wide, scale=1.0, axis=-1, mode=GeluMode.TANH)
    return Result((arithmetic.round(result, torch.float16),))


@golden_op(
    MATMUL, infer_shape=infer_shape_matmul, kernel=KernelArithmetic(quantises=True, roundings=1)
)
def compute_matmul(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """``op(x) . op(weight)``; int8 products are exact. Inputs: x, weight."""
    x, weight = tensor_at(MATMUL, inputs, 0), tensor_at(MATMUL, inputs, 1)
    if x.dtype == torch.int8:
        if bool_param(MATMUL, params, "transposeA", False):
            x = x.transpose(-1, -2)
        if bool_param(MATMUL, params, "transposeB", True):
            weight = weight.transpose(-1, -2)
        return Result((arithmetic.round(integer_matmul(x, weight), torch.float16),))
    y = _product(MATMUL, inputs, params, arithmetic)
    return Result((arithmetic.round(y, torch.float16),))


@golden_op(
    QUANT, infer_shape=infer_shape_quant, kernel=KernelArithmetic(quantises=True, roundings=1)
)
def compute_quant(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """``(x . weight + bias) * scale``. Inputs: int8 x, weight; int32 bias; scale as in Linear."""
    code = DType.FLOAT16.code
    return Result((_product(QUANT, inputs, params, arithmetic, outDataType=code),))


@golden_op(
    ACTIVATION,
    infer_shape=infer_shape_activation,
    kernel=KernelArithmetic(quantises=True, roundings=1),
)
def compute_activation(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """Product, bias and activation, each rounded to float16. Inputs: x, weight, bias."""
    y = _product(ACTIVATION, inputs[:2], params, arithmetic, hasBias=False).to(torch.float16)
    if bool_param(ACTIVATION, params, "hasBias", True):
        bias = tensor_at(ACTIVATION, inputs, 2)
        y = (arithmetic.widen(y) + arithmetic.widen(bias)).to(torch.float16)
    return _activated(ACTIVATION, y, params, arithmetic)


@golden_op(
    ACTIVATION_QUANT,
    infer_shape=infer_shape_activation_quant,
    kernel=KernelArithmetic(quantises=True, roundings=1),
)
def compute_activation_quant(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """The dequantised product rounded to float16, then the activation. Inputs: as LinearQuant."""
    code = DType.FLOAT16.code
    y = _product(ACTIVATION_QUANT, inputs, params, arithmetic, outDataType=code)
    return _activated(ACTIVATION_QUANT, y, params, arithmetic)
