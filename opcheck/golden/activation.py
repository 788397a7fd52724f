"""Activation: element-wise non-linear functions and the gated SwiGLU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

import torch
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
    check_shape,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import enum_param, float_param, int_param, tensor_at

NAME = "ActivationOperation"


class ActivationType(IntEnum):
    """Values of ``activationType``."""

    RELU = 1
    GELU = 2
    FAST_GELU = 3
    SWISH = 4
    LOG = 5
    SWIGLU_FORWARD = 6
    SWIGLU_BACKWARD = 7
    SIGMOID = 8
    FASTER_GELU_FORWARD = 9


class GeluMode(IntEnum):
    """Values of ``geluMode``, which dumps do not carry."""

    TANH = 0
    ERF = 1


_DTYPES = {
    ActivationType.RELU: (F32, BF16),
    ActivationType.FAST_GELU: (F16, BF16),
    ActivationType.SWISH: (F16, BF16),
    ActivationType.SIGMOID: (F16, BF16),
}


def _type(params: Params) -> ActivationType:
    return enum_param(NAME, params, "activationType", ActivationType, 0)


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape of x; SwiGLU halves ``dim`` forward and gives the gradient of x backward."""
    kind = _type(params)
    backward = kind is ActivationType.SWIGLU_BACKWARD
    check_count(NAME, descs, 2 if backward else 1)
    check_dtypes(NAME, descs, same(*_DTYPES.get(kind, (F32, F16, BF16)), count=len(descs)))
    x = descs[-1]
    if kind not in (ActivationType.SWIGLU_FORWARD, ActivationType.SWIGLU_BACKWARD):
        return (x,)
    axis = axis_of(NAME, "dim", int_param(NAME, params, "dim", -1), len(x.shape))
    halved = [*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :]]
    if backward:
        check_shape(NAME, descs, 0, halved)
        return (x,)
    return (replace(x, halved),)


def _gelu(x: Tensor, mode: GeluMode) -> Tensor:
    if mode is GeluMode.ERF:
        return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _halves(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    half = x.shape[axis] // 2
    return x.narrow(axis, 0, half), x.narrow(axis, half, half)


def _swiglu(x: Tensor, axis: int) -> Tensor:
    gate, value = _halves(x, axis)
    return gate * torch.sigmoid(gate) * value


def _swiglu_backward(dy: Tensor, x: Tensor, axis: int) -> Tensor:
    gate, value = _halves(x, axis)
    sigma = torch.sigmoid(gate)
    d_gate = value * dy * (sigma + gate * sigma * (1.0 - sigma))
    return torch.cat([d_gate, dy * gate * sigma], dim=axis)


def apply(kind: ActivationType, x: Tensor, *, scale: float, axis: int, mode: GeluMode) -> Tensor:
    """A forward function of a wide tensor; ``scale`` matters to SWISH, ``axis`` to SwiGLU.

    Both fast forms of GELU equal ``x * sigmoid(1.702 x)`` algebraically.
    """
    if kind is ActivationType.RELU:
        return torch.relu(x)
    if kind is ActivationType.GELU:
        return _gelu(x, mode)
    if kind in (ActivationType.FAST_GELU, ActivationType.FASTER_GELU_FORWARD):
        return x * torch.sigmoid(1.702 * x)
    if kind is ActivationType.SWISH:
        return x * torch.sigmoid(scale * x)
    if kind is ActivationType.LOG:
        return torch.log(x)
    if kind is ActivationType.SIGMOID:
        return torch.sigmoid(x)
    return _swiglu(x, axis)


def _alternatives(params: Params) -> tuple[Params, ...]:
    """GELU by the error function, where ``geluMode`` is not known."""
    if _type(params) is not ActivationType.GELU or "geluMode" in params:
        return ()
    return ({**params, "geluMode": int(GeluMode.ERF)},)


@golden_op(NAME, infer_shape=infer_shape, alternatives=_alternatives)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """One activation function.

    Inputs: x; for SWIGLU_BACKWARD dy, then x. The output has the dtype of input 0.
    """
    kind = _type(params)
    first = tensor_at(NAME, inputs, 0)
    axis = axis_of(NAME, "dim", int_param(NAME, params, "dim", -1), first.dim())
    if kind is ActivationType.SWIGLU_BACKWARD:
        x = tensor_at(NAME, inputs, 1)
        y = _swiglu_backward(arithmetic.widen(first), arithmetic.widen(x), axis)
    else:
        y = apply(
            kind,
            arithmetic.widen(first),
            scale=float_param(NAME, params, "scale", 1.0),
            axis=axis,
            mode=enum_param(NAME, params, "geluMode", GeluMode, 0),
        )
    return Result((arithmetic.round(y, first.dtype),))
