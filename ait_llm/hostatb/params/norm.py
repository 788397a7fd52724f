"""Parameters of normalisations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ait_llm.hostatb.params.base import UNPRINTED, Param, Struct
from ait_llm.hostatb.params.enums import DynamicQuantType, QuantType
from ait_llm.hostatb.params.fields import Float32, Float64, Int32, UInt32, UInt64


class _LayerNormType(IntEnum):
    LAYER_NORM_UNDEFINED = 0
    LAYER_NORM_NORM = 1
    LAYER_NORM_PRENORM = 2
    LAYER_NORM_POSTNORM = 3
    LAYER_NORM_MAX = 4


@dataclass(repr=False)
class _LayerNormNorm(Struct):
    quant_type: QuantType = QuantType.QUANT_UNQUANT
    epsilon: Float32 = 1e-5
    begin_norm_axis: Int32 = 0
    begin_params_axis: Int32 = 0
    dynamic_quant_type: DynamicQuantType = field(
        default=DynamicQuantType.DYNAMIC_QUANT_UNDEFINED, metadata=UNPRINTED
    )


@dataclass(repr=False)
class _LayerNormResidual(Struct):
    quant_type: QuantType = QuantType.QUANT_UNQUANT
    epsilon: Float32 = 1e-5
    op_mode: UInt64 = 0
    zoom_scale_value: Float32 = 1.0


@dataclass(repr=False)
class LayerNormParam(Param):
    """LayerNorm alone, before (PRENORM) or after (POSTNORM) a residual addition."""

    LayerNormType = _LayerNormType
    NormParam = _LayerNormNorm
    PreNormParam = _LayerNormResidual
    PostNormParam = _LayerNormResidual

    layer_type: _LayerNormType = _LayerNormType.LAYER_NORM_UNDEFINED
    norm_param: _LayerNormNorm = field(default_factory=_LayerNormNorm)
    pre_norm_param: _LayerNormResidual = field(default_factory=_LayerNormResidual)
    post_norm_param: _LayerNormResidual = field(default_factory=_LayerNormResidual)


@dataclass(repr=False)
class LayerNormWithStrideParam(LayerNormParam):
    """LayerNorm over a strided view."""


class _RmsNormType(IntEnum):
    RMS_NORM_UNDEFINED = 0
    RMS_NORM_NORM = 1
    RMS_NORM_PRENORM = 2
    RMS_NORM_POSTNORM = 3


class _PrecisionMode(IntEnum):
    HIGH_PRECISION_MODE = 0
    HIGH_PERFORMANCE_MODE = 1


class _ModelType(IntEnum):
    LLAMA_MODEL = 0
    GEMMA_MODEL = 1


@dataclass(repr=False)
class _RmsNormNorm(Struct):
    quant_type: QuantType = QuantType.QUANT_UNQUANT
    epsilon: Float32 = 1e-5
    layer_norm_eps: Float64 = 1e-5
    rstd: bool = False
    precision_mode: _PrecisionMode = _PrecisionMode.HIGH_PRECISION_MODE
    model_type: _ModelType = _ModelType.LLAMA_MODEL
    dynamic_quant_type: DynamicQuantType = DynamicQuantType.DYNAMIC_QUANT_UNDEFINED


@dataclass(repr=False)
class _RmsNormResidual(Struct):
    quant_type: QuantType = QuantType.QUANT_UNQUANT
    epsilon: Float32 = 1e-5
    has_bias: bool = False


@dataclass(repr=False)
class RmsNormParam(Param):
    """RmsNorm alone, before (PRENORM) or after (POSTNORM) a residual addition."""

    RmsNormType = _RmsNormType
    PrecisionMode = _PrecisionMode
    ModelType = _ModelType
    NormParam = _RmsNormNorm
    PreNormParam = _RmsNormResidual
    PostNormParam = _RmsNormResidual

    layer_type: _RmsNormType = _RmsNormType.RMS_NORM_UNDEFINED
    norm_param: _RmsNormNorm = field(default_factory=_RmsNormNorm)
    pre_norm_param: _RmsNormResidual = field(default_factory=_RmsNormResidual)
    post_norm_param: _RmsNormResidual = field(default_factory=_RmsNormResidual)


@dataclass(repr=False)
class _StridedRmsNormNorm(_RmsNormNorm):
    dynamic_quant_type: DynamicQuantType = field(
        default=DynamicQuantType.DYNAMIC_QUANT_UNDEFINED, metadata=UNPRINTED
    )


@dataclass(repr=False)
class RmsNormWithStrideParam(Param):
    """RmsNorm over a strided view; its operation calls itself RmsNormOperation."""

    RmsNormType = _RmsNormType
    PrecisionMode = _PrecisionMode
    ModelType = _ModelType
    NormParam = _StridedRmsNormNorm
    PreNormParam = _RmsNormResidual
    PostNormParam = _RmsNormResidual
    operation = "RmsNormOperation"

    layer_type: _RmsNormType = _RmsNormType.RMS_NORM_UNDEFINED
    norm_param: _StridedRmsNormNorm = field(default_factory=_StridedRmsNormNorm)
    pre_norm_param: _RmsNormResidual = field(default_factory=_RmsNormResidual)
    post_norm_param: _RmsNormResidual = field(default_factory=_RmsNormResidual)


@dataclass(repr=False)
class CohereLayerNormParam(Param):
    """LayerNorm without beta, per head."""

    epsilon: Float32 = 1e-5


@dataclass(repr=False)
class GatherPreRmsNormParam(Param):
    """RmsNorm of the sum with gathered residual rows."""

    epsilon: Float32 = 1e-5


@dataclass(repr=False)
class NormRopeReshapeParam(Param):
    """RmsNorm, rotary embedding and cache write in one."""

    precision_mode: UInt32 = 0
    rotary_coeff: UInt32 = 2
    epsilon: Float32 = 1e-5
