"""LayerNorm: normalisation by mean and variance, with residual and quantised forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, KernelArithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.quantise import (
    divide_quant,
    dynamic_quant_asymmetric,
    dynamic_quant_symmetric,
    half_steps_quant,
)
from ait_llm.opcheck.golden.rms_norm import (
    LAYER_PARAMS,
    DynamicQuantType,
    LayerType,
    QuantType,
)
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    check_count,
    check_dtypes,
    check_last_dim,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    enum_param,
    float_param,
    int_param,
    nested_flag,
    nested_params,
    refused,
    tensor_at,
)

NAME = "LayerNormOperation"


@dataclass(frozen=True, slots=True)
class _Variant:
    """The parameters that matter to the chosen layer."""

    layer: LayerType
    quant: QuantType
    dynamic: DynamicQuantType
    epsilon: float
    begin_axis: int
    zoom: float


def _variant(params: Params, inputs: int) -> _Variant:
    """Dumps lack ``dynamicQuantType``: three inputs with int8 output mean a symmetric one."""
    layer = enum_param(NAME, params, "layerType", LayerType, 0)
    own = nested_params(NAME, params, LAYER_PARAMS[layer])
    quant = enum_param(NAME, own, "quantType", QuantType, 0)
    dynamic = DynamicQuantType.STATIC
    if layer is LayerType.NORM and quant is QuantType.INT8:
        implied = DynamicQuantType.SYMMETRIC if inputs == 3 else DynamicQuantType.STATIC
        dynamic = enum_param(NAME, own, "dynamicQuantType", DynamicQuantType, implied)
    return _Variant(
        layer,
        quant,
        dynamic,
        float_param(NAME, own, "epsilon", 1e-5),
        int_param(NAME, own, "beginNormAxis", 0),
        float_param(NAME, own, "zoomScaleValue", 1.0),
    )


def _counts(variant: _Variant) -> int:
    if variant.layer is LayerType.NORM:
        static = variant.quant is QuantType.INT8 and variant.dynamic is DynamicQuantType.STATIC
        return 5 if static else 3
    return 6 if variant.quant is QuantType.INT8 else 4


def _dtypes(variant: _Variant) -> list[tuple[DType, ...]]:
    quantised = variant.quant is QuantType.INT8
    if variant.layer is LayerType.PRENORM:
        return [(F16,) * 4, (BF16,) * 4]
    if variant.layer is LayerType.POSTNORM:
        return [(F16,) * 5 + (I8,)] if quantised else [(F16,) * 4]
    if not quantised:
        return [(F16,) * 3, (F32,) * 3, (BF16,) * 3]
    if variant.dynamic is DynamicQuantType.STATIC:
        return [(F16,) * 4 + (I8,), (BF16,) * 4 + (I8,)]
    return [(F16,) * 3]


def _check_params_shape(variant: _Variant, descs: Sequence[TensorDesc]) -> None:
    """Gamma and beta cover the normalised dimensions."""
    x = descs[0].shape
    first = 1 if variant.layer is LayerType.NORM else 2
    for index in (first, first + 1):
        shape = descs[index].shape
        if not shape or shape[-1] != x[-1]:
            raise refused(
                NAME,
                f"input {index} has shape {list(shape)}; for x of {list(x)} its last dimension "
                f"must be {x[-1]}",
            )
    if variant.layer is LayerType.NORM and variant.quant is QuantType.NONE:
        gamma, begin = descs[1].shape, variant.begin_axis
        normalised = -begin if begin < 0 else len(x) - begin
        if normalised != len(gamma) or x[len(x) - len(gamma) :] != gamma:
            raise refused(
                NAME,
                f"gamma has shape {list(gamma)}; with beginNormAxis {begin} it must be the "
                f"trailing part of {list(x)} from there on",
            )


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape for values, sums and int8; one float32 entry per row for scales and offsets."""
    variant = _variant(params, len(descs))
    quantised = variant.quant is QuantType.INT8
    if variant.layer is LayerType.PRENORM and quantised:
        raise refused(NAME, "PRENORM is not quantised; set its quantType to 0")
    check_count(NAME, descs, _counts(variant))
    check_dtypes(NAME, descs, _dtypes(variant))
    x = descs[0]
    if not x.shape:
        raise refused(NAME, "x has no dimensions; it takes at least one")
    _check_params_shape(variant, descs)
    if variant.layer is not LayerType.NORM:
        check_shape(NAME, descs, 1, x.shape)
    if variant.layer is not LayerType.NORM or quantised:
        check_last_dim(NAME, descs, 16)
    if descs[-1].dtype is I8:
        for index in (len(descs) - 2, len(descs) - 1):
            check_shape(NAME, descs, index, (1,))
    if variant.layer is LayerType.PRENORM:
        return x, x
    int8 = replace(x, dtype=I8)
    if variant.layer is LayerType.POSTNORM:
        return (x, int8) if quantised else (x,)
    if not quantised:
        return (x,)
    return (int8, *([replace(x, x.shape[:-1], F32)] * int(variant.dynamic)))


def layer_norm(
    values: Tensor, gamma: Tensor, beta: Tensor, dims: Sequence[int], epsilon: float
) -> Tensor:
    """``gamma * (v - mean) / sqrt(var + epsilon) + beta`` over ``dims``, biased variance."""
    axes = tuple(dims)
    centred = values - values.mean(dim=axes, keepdim=True)
    variance = centred.square().mean(dim=axes, keepdim=True)
    return gamma * (centred * torch.rsqrt(variance + epsilon)) + beta


def _norm(
    variant: _Variant, inputs: Sequence[Tensor | None], arithmetic: Arithmetic
) -> tuple[Tensor, ...]:
    x = tensor_at(NAME, inputs, 0)
    quantised = variant.quant is QuantType.INT8
    begin = -1 if quantised else variant.begin_axis
    if not -x.dim() <= begin < x.dim():
        raise refused(NAME, f"beginNormAxis is {begin}; x has {x.dim()} dimensions")
    gamma, beta = (arithmetic.widen(tensor_at(NAME, inputs, index)) for index in (1, 2))
    dims = range(begin % x.dim(), x.dim())
    y = layer_norm(arithmetic.widen(x), gamma, beta, dims, variant.epsilon)
    if not quantised:
        return (arithmetic.round(y, x.dtype),)
    if variant.dynamic is DynamicQuantType.STATIC:
        scale, offset = tensor_at(NAME, inputs, 3), tensor_at(NAME, inputs, 4)
        return (divide_quant(y, scale, offset, arithmetic.int8_min),)
    half = y.to(torch.float16)
    if variant.dynamic is DynamicQuantType.ASYMMETRIC:
        return dynamic_quant_asymmetric(half, arithmetic.int8_min)
    return dynamic_quant_symmetric(half, arithmetic.int8_min)


def _with_residual(
    variant: _Variant, inputs: Sequence[Tensor | None], arithmetic: Arithmetic
) -> tuple[Tensor, ...]:
    x = tensor_at(NAME, inputs, 0)
    residual, gamma, beta = (arithmetic.widen(tensor_at(NAME, inputs, i)) for i in (1, 2, 3))
    quantised = variant.quant is QuantType.INT8
    total = arithmetic.widen(x) + residual * (1.0 if quantised else variant.zoom)
    y = layer_norm(total, gamma, beta, (-1,), variant.epsilon)
    rounded = arithmetic.round(y, x.dtype)
    if variant.layer is LayerType.PRENORM:
        return rounded, arithmetic.round(total, x.dtype)
    if not quantised:
        return (rounded,)
    scale, offset = tensor_at(NAME, inputs, 4), tensor_at(NAME, inputs, 5)
    return rounded, half_steps_quant(y, scale, offset, arithmetic.int8_min)


def _recover(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """``dynamicQuantType`` is never printed: two outputs mean symmetric, three asymmetric."""
    layer = enum_param(NAME, params, "layerType", LayerType, 0)
    own = nested_params(NAME, params, LAYER_PARAMS[layer])
    dynamic = {2: DynamicQuantType.SYMMETRIC, 3: DynamicQuantType.ASYMMETRIC}.get(len(outputs))
    if layer is not LayerType.NORM or dynamic is None or "dynamicQuantType" in own:
        return params
    return {**params, LAYER_PARAMS[layer]: {**own, "dynamicQuantType": int(dynamic)}}


def _kernel(params: Params) -> KernelArithmetic:
    return KernelArithmetic(quantises=True, by_rows=nested_flag(params, "dynamicQuantType"))


@golden_op(NAME, infer_shape=infer_shape, recover=_recover, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Layer normalisation of x, or of ``x + zoomScaleValue * residual``.

    Inputs and outputs by layer:

    * NORM: x, gamma, beta gives y over the dimensions from ``beginNormAxis``; quantised, over the
      last one, x, gamma, beta, scale, offset gives int8; dynamic x, gamma, beta gives int8, scales
      (and offsets).
    * PRENORM: x, residual, gamma, beta gives y and the sum.
    * POSTNORM: x, residual, gamma, beta gives y; quantised, with scale and offset after them, y
      and int8.
    """
    variant = _variant(params, len(inputs))
    if variant.layer is LayerType.NORM:
        return Result(_norm(variant, inputs, arithmetic))
    return Result(_with_residual(variant, inputs, arithmetic))
