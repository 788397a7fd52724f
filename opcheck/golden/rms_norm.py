"""RmsNorm: division by the root mean square, with residual, bias and quantised forms.

``RmsNormWithStride`` reports the same class name and is told by its two trailing int64 inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Refusal,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.quantise import (
    divide_quant,
    dynamic_quant_asymmetric,
    dynamic_quant_symmetric,
    half_steps_quant,
)
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I64,
    check_count,
    check_dtypes,
    check_last_dim,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    enum_param,
    float_param,
    int_param,
    nested_flag,
    nested_params,
    refused,
    tensor_at,
)

NAME = "RmsNormOperation"


class LayerType(IntEnum):
    """Values of ``layerType``, of RmsNorm and LayerNorm."""

    NORM = 1
    PRENORM = 2
    POSTNORM = 3


class QuantType(IntEnum):
    """Values of ``quantType`` that the norms take."""

    NONE = 0
    INT8 = 2


class DynamicQuantType(IntEnum):
    """Values of ``dynamicQuantType``."""

    STATIC = 0
    SYMMETRIC = 1
    ASYMMETRIC = 2


LAYER_PARAMS = {
    LayerType.NORM: "normParam",
    LayerType.PRENORM: "preNormParam",
    LayerType.POSTNORM: "postNormParam",
}


@dataclass(frozen=True, slots=True)
class _Variant:
    """The parameters that matter to the chosen layer."""

    layer: LayerType
    quant: QuantType
    dynamic: DynamicQuantType
    epsilon: float
    has_bias: bool
    rstd: bool
    high_performance: bool
    gemma: bool

    @property
    def input_count(self) -> int:
        if self.layer is LayerType.NORM:
            if self.quant is QuantType.NONE:
                return 2
            return 5 if self.dynamic is DynamicQuantType.STATIC else 3
        if self.quant is QuantType.INT8:
            return 6 if self.layer is LayerType.PRENORM else 5
        return 4 if self.has_bias else 3

    @property
    def gamma_index(self) -> int:
        return 1 if self.layer is LayerType.NORM else 2 + self.has_bias


def _variant(params: Params) -> _Variant:
    layer = enum_param(NAME, params, "layerType", LayerType, 0)
    own = nested_params(NAME, params, LAYER_PARAMS[layer])
    return _Variant(
        layer,
        enum_param(NAME, own, "quantType", QuantType, 0),
        enum_param(NAME, own, "dynamicQuantType", DynamicQuantType, 0),
        float_param(NAME, own, "epsilon", 1e-5),
        bool_param(NAME, own, "hasBias", False),
        bool_param(NAME, own, "rstd", False),
        bool(int_param(NAME, own, "precisionMode", 0)),
        bool(int_param(NAME, own, "modelType", 0)),
    )


def _is_strided(dtypes: Sequence[object], int64: object) -> bool:
    return len(dtypes) == 4 and dtypes[2] == dtypes[3] == int64


def _check_options(variant: _Variant, x: TensorDesc) -> None:
    quantised = variant.quant is QuantType.INT8
    if variant.rstd and x.dtype is not F32:
        raise refused(NAME, f"x is {x.dtype.label}; with rstd it takes float", Refusal.DTYPE)
    if variant.high_performance and x.dtype is not F16:
        raise refused(
            NAME, f"x is {x.dtype.label}; the high performance mode takes float16", Refusal.DTYPE
        )
    options = {
        "rstd": variant.rstd,
        "the high performance mode": variant.high_performance,
        "modelType GEMMA": variant.gemma,
        "quantisation": quantised,
    }
    chosen = [name for name, on in options.items() if on]
    if len(chosen) > 1:
        raise refused(NAME, f"{' and '.join(chosen)} exclude each other; choose one")
    if variant.has_bias and quantised:
        raise refused(NAME, "hasBias and quantisation exclude each other; choose one")


def _check_gamma(descs: Sequence[TensorDesc], index: int, *, any_rank: bool = False) -> None:
    """Gamma, beta and bias have the last dimension of x, or with rstd its trailing ones."""
    x, gamma = descs[0].shape, descs[index].shape
    if any_rank:
        if len(gamma) > len(x) or x[len(x) - len(gamma) :] != gamma:
            raise refused(
                NAME, f"gamma has shape {list(gamma)}; it must be the trailing part of {list(x)}"
            )
    elif not gamma or gamma[-1] != x[-1] or any(size != 1 for size in gamma[:-1]):
        raise refused(
            NAME,
            f"input {index} has shape {list(gamma)}; for x of {list(x)} it must be [{x[-1]}]",
        )


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape for values, sums and int8; one float32 entry per row for scales and rstd."""
    variant = _variant(params)
    strided = _is_strided([desc.dtype for desc in descs], I64)
    check_count(NAME, descs, 4 if strided else variant.input_count)
    x = descs[0]
    if not x.shape:
        raise refused(NAME, "x has no dimensions; it takes at least one")
    _check_options(variant, x)
    if strided:
        check_dtypes(NAME, descs, ((F16, F16, I64, I64), (BF16, BF16, I64, I64)))
        _check_gamma(descs, 1)
        return (x,)
    quantised = variant.quant is QuantType.INT8
    static = quantised and variant.dynamic is DynamicQuantType.STATIC
    floats = len(descs) - 2 if static else len(descs)
    dtypes = (F16,) if quantised and not static else (F16, BF16)
    if variant.layer is LayerType.PRENORM and quantised:
        dtypes = (F16,)
    combos = [(dtype,) * floats for dtype in ((F32,) if variant.rstd else dtypes)]
    if static:
        combos = [(*row, row[0], I8) for row in combos]
        for index in (-2, -1):
            check_shape(NAME, descs, len(descs) + index, (1,))
    check_dtypes(NAME, descs, combos)
    if variant.layer is not LayerType.NORM:
        check_shape(NAME, descs, 1 + variant.has_bias, x.shape)
        if variant.has_bias:
            _check_gamma(descs, 1)
    _check_gamma(descs, variant.gamma_index, any_rank=variant.rstd)
    check_last_dim(NAME, descs, 8 if x.dtype is F32 else 16)
    if variant.layer is LayerType.POSTNORM and quantised:
        check_last_dim(NAME, descs, 32)
    rows = replace(x, x.shape[:-1], F32)
    int8 = replace(x, dtype=I8)
    if variant.rstd:
        normalised = len(descs[1].shape)
        kept = x.shape[: len(x.shape) - normalised]
        return x, replace(x, kept + (1,) * normalised, F32)
    if variant.layer is LayerType.NORM:
        if not quantised:
            return (x,)
        return (int8, *([rows] * int(variant.dynamic)))
    if quantised:
        return int8, x
    return (x, x) if variant.layer is LayerType.PRENORM else (x,)


def reciprocal_rms(values: Tensor, dims: Sequence[int], epsilon: float) -> Tensor:
    """``1 / sqrt(mean(values**2) + epsilon)`` over ``dims``, which stay with length 1."""
    return torch.rsqrt(values.square().mean(dim=tuple(dims), keepdim=True) + epsilon)


def _normalise(variant: _Variant, total: Tensor, gamma: Tensor, arithmetic: Arithmetic) -> Tensor:
    rstd = reciprocal_rms(total, (-1,), variant.epsilon)
    if variant.high_performance:
        half = (total * rstd).to(torch.float16)
        return half * gamma.to(torch.float16).reshape(-1)
    weight = arithmetic.widen(gamma).reshape(-1)
    return total * rstd * (1.0 + weight if variant.gemma else weight)


def _norm(
    variant: _Variant, inputs: Sequence[Tensor | None], arithmetic: Arithmetic
) -> tuple[Tensor, ...]:
    x, gamma = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    if _is_strided([None if t is None else t.dtype for t in inputs], torch.int64):
        strides = tensor_at(NAME, inputs, 2).tolist()
        offset = int(tensor_at(NAME, inputs, 3).reshape(-1)[0])
        x = x.reshape(-1).as_strided(x.shape, strides, offset)
    wide = arithmetic.widen(x)
    if variant.rstd:
        rstd = reciprocal_rms(wide, range(-gamma.dim(), 0), variant.epsilon)
        y = wide * rstd * arithmetic.widen(gamma)
        return arithmetic.round(y, x.dtype), arithmetic.round(rstd, torch.float32)
    y = _normalise(variant, wide, gamma, arithmetic)
    if variant.quant is QuantType.NONE:
        return (arithmetic.round(y, x.dtype),)
    y = y + arithmetic.widen(tensor_at(NAME, inputs, 2))
    if variant.dynamic is DynamicQuantType.STATIC:
        scale, offset_tensor = tensor_at(NAME, inputs, 3), tensor_at(NAME, inputs, 4)
        return (divide_quant(y, scale, offset_tensor, arithmetic.int8_min),)
    half = y.to(torch.float16)
    if variant.dynamic is DynamicQuantType.ASYMMETRIC:
        return dynamic_quant_asymmetric(half, arithmetic.int8_min)
    return dynamic_quant_symmetric(half, arithmetic.int8_min)


def _with_residual(
    variant: _Variant, inputs: Sequence[Tensor | None], arithmetic: Arithmetic
) -> tuple[Tensor, ...]:
    x = tensor_at(NAME, inputs, 0)
    gamma_index = variant.gamma_index
    total = arithmetic.widen(x)
    for index in range(1, gamma_index):
        total = total + arithmetic.widen(tensor_at(NAME, inputs, index))
    y = _normalise(variant, total, tensor_at(NAME, inputs, gamma_index), arithmetic)
    prenorm = variant.layer is LayerType.PRENORM
    summed = arithmetic.round(total, x.dtype)
    rounded = arithmetic.round(y, x.dtype)
    if variant.quant is QuantType.NONE:
        return (rounded, summed) if prenorm else (rounded,)
    scale_index = gamma_index + 1
    if prenorm:
        y = y + arithmetic.widen(tensor_at(NAME, inputs, gamma_index + 1))
        scale_index += 1
    scale = tensor_at(NAME, inputs, scale_index)
    offset = tensor_at(NAME, inputs, scale_index + 1)
    quant = half_steps_quant if prenorm else divide_quant
    return quant(y, scale, offset, arithmetic.int8_min), (summed if prenorm else rounded)


def _kernel(params: Params) -> KernelArithmetic:
    """The fast kernel multiplies by gamma in float16."""
    fast, by_rows = (nested_flag(params, key) for key in ("precisionMode", "dynamicQuantType"))
    return KernelArithmetic(quantises=True, roundings=int(fast), by_rows=by_rows)


@golden_op(NAME, "RmsNormWithStrideOperation", infer_shape=infer_shape, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``s / sqrt(mean(s**2) + epsilon) * gamma`` with ``s = x (+ bias) (+ residual)``.

    The norm is taken of the unrounded sum. Inputs and outputs by layer:

    * NORM: x, gamma gives y (and float32 rstd); quantised x, gamma, beta, scale, offset gives int8;
      dynamic x, gamma, beta gives int8, scales (and offsets); strided x, gamma, strides, offset.
    * PRENORM: x, [bias], residual, gamma gives y and the sum; quantised x, residual, gamma, beta,
      scale, offset gives int8 and the sum.
    * POSTNORM: x, [bias], residual, gamma gives y; quantised x, residual, gamma, scale, offset
      gives int8 and y.
    """
    variant = _variant(params)
    if variant.layer is LayerType.NORM:
        return Result(_norm(variant, inputs, arithmetic))
    return Result(_with_residual(variant, inputs, arithmetic))
