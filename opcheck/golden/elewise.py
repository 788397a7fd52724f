"""Elewise: arithmetic, comparison, logic, casts and element-wise quantisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Result,
    UnverifiableError,
    golden_op,
)
from ait_llm.opcheck.golden.quantise import (
    dynamic_quant_asymmetric,
    dynamic_quant_symmetric,
    float8_quant,
    multiply_quant,
    per_channel_dequant,
    per_channel_quant,
)
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    I64,
    broadcast,
    check_count,
    check_dtypes,
    check_last_dim,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    dtype_param,
    enum_param,
    float_param,
    nested_params,
    optional_at,
    refused,
    tensor_at,
    torch_dtype,
)

NAME = "ElewiseOperation"


class ElewiseType(IntEnum):
    """Values of ``elewiseType``."""

    CAST = 1
    MULS = 2
    COS = 3
    SIN = 4
    NEG = 5
    QUANT = 6
    LOGICAL_NOT = 7
    ADD = 8
    MUL = 9
    REALDIV = 10
    LOGICAL_AND = 11
    LOGICAL_OR = 12
    LESS = 13
    GREATER = 14
    SUB = 15
    EQUAL = 16
    QUANT_PER_CHANNEL = 17
    DEQUANT_PER_CHANNEL = 18
    DYNAMIC_QUANT = 19
    TANH = 20


_UNARY: dict[ElewiseType, Callable[[Tensor], Tensor]] = {
    ElewiseType.COS: torch.cos,
    ElewiseType.SIN: torch.sin,
    ElewiseType.TANH: torch.tanh,
    ElewiseType.NEG: torch.neg,
}
_ARITHMETIC: dict[ElewiseType, Callable[[Tensor, Tensor], Tensor]] = {
    ElewiseType.ADD: torch.add,
    ElewiseType.SUB: torch.sub,
    ElewiseType.MUL: torch.mul,
    ElewiseType.REALDIV: torch.true_divide,
}
_PREDICATES: dict[ElewiseType, Callable[[Tensor, Tensor], Tensor]] = {
    ElewiseType.LESS: torch.lt,
    ElewiseType.GREATER: torch.gt,
    ElewiseType.EQUAL: torch.eq,
    ElewiseType.LOGICAL_AND: torch.logical_and,
    ElewiseType.LOGICAL_OR: torch.logical_or,
}
_DTYPES: dict[ElewiseType, Sequence[Sequence[DType]]] = {
    ElewiseType.CAST: same(F16, F32, I32, I64, BF16, count=1),
    ElewiseType.MULS: same(F16, F32, BF16, count=1),
    ElewiseType.COS: same(F16, F32, BF16, count=1),
    ElewiseType.SIN: same(F16, F32, BF16, count=1),
    ElewiseType.TANH: same(F16, BF16, count=1),
    ElewiseType.NEG: same(F16, BF16, count=1),
    ElewiseType.QUANT: same(F16, count=1),
    ElewiseType.LOGICAL_NOT: same(I8, count=1),
    ElewiseType.ADD: same(F16, F32, BF16, I32, I64, count=2),
    ElewiseType.SUB: same(F16, I64, BF16, count=2),
    ElewiseType.MUL: same(F16, BF16, count=2),
    ElewiseType.REALDIV: same(F16, F32, BF16, count=2),
    ElewiseType.LOGICAL_AND: same(I8, count=2),
    ElewiseType.LOGICAL_OR: same(I8, count=2),
    ElewiseType.LESS: same(I64, F16, F32, BF16, count=2),
    ElewiseType.GREATER: same(I64, F16, F32, BF16, count=2),
    ElewiseType.EQUAL: same(F16, F32, BF16, count=2),
    ElewiseType.QUANT_PER_CHANNEL: ((F16, F16, I8), (BF16, BF16, I8)),
    ElewiseType.DEQUANT_PER_CHANNEL: ((I8, F16, I8),),
    ElewiseType.DYNAMIC_QUANT: same(F16, BF16, count=1),
}
_CAST_TO = (DType.UNDEFINED, F16, F32, I32, I64, BF16)
# Longest row that dynamic quantisation takes.
_DYNAMIC_QUANT_ROW = {F16: 26624, BF16: 7552}


_EIGHT_BIT_FLOATS = (DType.HIFLOAT8, DType.FLOAT8_E5M2, DType.FLOAT8_E4M3FN)


def _type(params: Params) -> ElewiseType:
    return enum_param(NAME, params, "elewiseType", ElewiseType, 0)


def _cast_target(params: Params, source: DType) -> DType:
    target = dtype_param(NAME, params, "outTensorType")
    if target not in _CAST_TO:
        raise refused(
            NAME,
            f"cannot cast to {target.label}; outTensorType takes float16, float, int32, "
            "int64 or bf16",
        )
    if target is DType.UNDEFINED:
        return F16 if source is F32 else F32
    return target


def _quant_value(params: Params, key: str) -> float:
    """A quantisation parameter; old dumps have it beside the other parameters."""
    nested = nested_params(NAME, params, "quantParam")
    default = 1.0 if key == "inputScale" else 0.0
    return float_param(NAME, nested if key in nested else params, key, default)


def _quant_target(params: Params) -> DType:
    """int8, or the 8-bit float of Ascend 950 that ``outTensorType`` asks for."""
    target = dtype_param(NAME, params, "outTensorType")
    return target if target in _EIGHT_BIT_FLOATS else I8


def _asymmetric(params: Params) -> bool:
    nested = nested_params(NAME, params, "quantParam")
    return bool_param(NAME, nested if "asymmetric" in nested else params, "asymmetric", False)


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape of x, or what x and y broadcast to; predicates and quantised values are int8."""
    kind = _type(params)
    combos = _DTYPES[kind]
    check_count(NAME, descs, len(combos[0]))
    check_dtypes(NAME, descs, combos)
    x = descs[0]
    if kind is ElewiseType.CAST:
        return (replace(x, dtype=_cast_target(params, x.dtype)),)
    if kind in _ARITHMETIC:
        return (replace(x, broadcast(NAME, x.shape, descs[1].shape)),)
    if kind in _PREDICATES:
        return (replace(x, broadcast(NAME, x.shape, descs[1].shape), I8),)
    if kind is ElewiseType.QUANT:
        check_last_dim(NAME, descs, 32)
        return (replace(x, dtype=_quant_target(params)),)
    if kind in (ElewiseType.QUANT_PER_CHANNEL, ElewiseType.DEQUANT_PER_CHANNEL):
        for channels in descs[1:]:
            if channels.elements and broadcast(NAME, x.shape, channels.shape) != x.shape:
                raise refused(
                    NAME,
                    f"channels of {list(channels.shape)} are more than x of {list(x.shape)} has",
                )
        return (replace(x, dtype=I8 if kind is ElewiseType.QUANT_PER_CHANNEL else F16),)
    if kind is ElewiseType.DYNAMIC_QUANT:
        return _infer_dynamic_quant(x, params)
    return (x,)


def _infer_dynamic_quant(x: TensorDesc, params: Params) -> tuple[TensorDesc, ...]:
    longest = _DYNAMIC_QUANT_ROW[x.dtype]
    if len(x.shape) < 2 or x.shape[-1] > longest:
        raise refused(
            NAME,
            f"input 0 has shape {list(x.shape)}; dynamic quantisation of {x.dtype.label} takes at "
            f"least 2 dimensions and rows of at most {longest}",
        )
    if _asymmetric(params):
        raise refused(NAME, "the library does not create asymmetric dynamic quantisation")
    return replace(x, dtype=I8), replace(x, x.shape[:-1], F32)


def _cast(x: Tensor, target: DType) -> Tensor:
    """Float to integer truncates toward zero; everything else rounds to nearest even."""
    return x.to(torch_dtype(target))


def _quantise(
    kind: ElewiseType, inputs: Sequence[Tensor | None], params: Params, lowest: int
) -> tuple[Tensor, ...]:
    x = tensor_at(NAME, inputs, 0)
    if kind is ElewiseType.QUANT:
        scale, offset = _quant_value(params, "inputScale"), _quant_value(params, "inputOffset")
        target = _quant_target(params)
        if target is DType.HIFLOAT8:
            raise UnverifiableError(f"{NAME}: hifloat8 has no conversion in torch")
        if target is not I8:
            return (float8_quant(x, scale, int(offset), torch_dtype(target)),)
        return (multiply_quant(x, scale, int(offset), lowest),)
    if kind is ElewiseType.DYNAMIC_QUANT:
        if _asymmetric(params):
            return dynamic_quant_asymmetric(x, lowest, half_away=True)
        return dynamic_quant_symmetric(x, lowest, half_away=True)
    scale_tensor, offset_tensor = tensor_at(NAME, inputs, 1), optional_at(inputs, 2)
    if kind is ElewiseType.QUANT_PER_CHANNEL:
        return (per_channel_quant(x, scale_tensor, offset_tensor, lowest),)
    return (per_channel_dequant(x, scale_tensor, offset_tensor),)


_QUANTISING = (ElewiseType.QUANT, ElewiseType.QUANT_PER_CHANNEL, ElewiseType.DYNAMIC_QUANT)
_EXACT = (ElewiseType.CAST, ElewiseType.NEG, ElewiseType.LOGICAL_NOT, *_PREDICATES)


def _kernel(params: Params) -> KernelArithmetic:
    kind = _type(params)
    by_rows = kind is ElewiseType.DYNAMIC_QUANT and _asymmetric(params)
    exact = kind in _EXACT
    return KernelArithmetic(
        moves=exact, any_nan=exact, quantises=kind in _QUANTISING, by_rows=by_rows
    )


@golden_op(NAME, infer_shape=infer_shape, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """One element-wise function; two operands broadcast.

    Inputs: x, or x and y; x, scale and offset (int8, may be absent or empty) for the per-channel
    forms. DYNAMIC_QUANT gives int8 values, float32 scales and, if asymmetric, float32 offsets.
    """
    kind = _type(params)
    x = tensor_at(NAME, inputs, 0)
    if kind is ElewiseType.CAST:
        dtype = DType.from_label(str(x.dtype).removeprefix("torch."))
        return Result((_cast(x, _cast_target(params, dtype)),))
    if kind is ElewiseType.LOGICAL_NOT:
        return Result(((x == 0).to(torch.int8),))
    if kind in _UNARY:
        return Result((arithmetic.round(_UNARY[kind](arithmetic.widen(x)), x.dtype),))
    if kind is ElewiseType.MULS:
        nested = nested_params(NAME, params, "mulsParam")
        factor = float_param(NAME, nested if "varAttr" in nested else params, "varAttr", 0.0)
        return Result((arithmetic.round(arithmetic.widen(x) * factor, x.dtype),))
    if kind in _ARITHMETIC:
        y = tensor_at(NAME, inputs, 1)
        value = _ARITHMETIC[kind](arithmetic.widen(x), arithmetic.widen(y))
        return Result((arithmetic.round(value, x.dtype),))
    if kind in _PREDICATES:
        return Result((_PREDICATES[kind](x, tensor_at(NAME, inputs, 1)).to(torch.int8),))
    return Result(_quantise(kind, inputs, params, arithmetic.int8_min))
