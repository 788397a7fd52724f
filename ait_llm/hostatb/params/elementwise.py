"""Parameters of element-wise, activation, reduction and similar operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ait_llm.hostatb.params.base import UNPRINTED, Param, Struct
from ait_llm.hostatb.params.enums import AclDataType, ActivationType
from ait_llm.hostatb.params.fields import (
    Float32,
    Float32List,
    Int32,
    Int64,
    Int64List,
    UInt32,
)


@dataclass(repr=False)
class ActivationParam(Param):
    """Activation: ``scale`` is for swish, ``dim`` the axis that swiglu splits."""

    class GeLUMode(IntEnum):
        TANH_MODE = 0
        NONE_MODE = 1

    activation_type: ActivationType = ActivationType.ACTIVATION_UNDEFINED
    scale: Float32 = 1.0
    dim: Int32 = -1
    gelu_mode: GeLUMode = field(default=GeLUMode.TANH_MODE, metadata=UNPRINTED)


@dataclass(repr=False)
class ElewiseParam(Param):
    """Element-wise function of one, two or three tensors."""

    class ElewiseType(IntEnum):
        ELEWISE_UNDEFINED = 0
        ELEWISE_CAST = 1
        ELEWISE_MULS = 2
        ELEWISE_COS = 3
        ELEWISE_SIN = 4
        ELEWISE_NEG = 5
        ELEWISE_QUANT = 6
        ELEWISE_LOGICAL_NOT = 7
        ELEWISE_ADD = 8
        ELEWISE_MUL = 9
        ELEWISE_REALDIV = 10
        ELEWISE_LOGICAL_AND = 11
        ELEWISE_LOGICAL_OR = 12
        ELEWISE_LESS = 13
        ELEWISE_GREATER = 14
        ELEWISE_SUB = 15
        ELEWISE_EQUAL = 16
        ELEWISE_QUANT_PER_CHANNEL = 17
        ELEWISE_DEQUANT_PER_CHANNEL = 18
        ELEWISE_DYNAMIC_QUANT = 19
        ELEWISE_TANH = 20

    @dataclass(repr=False)
    class QuantParam(Struct):
        input_scale: Float32 = 1.0
        asymmetric: bool = False
        input_offset: Int32 = 0

    @dataclass(repr=False)
    class MulsParam(Struct):
        var_attr: Float32 = 0.0

    elewise_type: ElewiseType = ElewiseType.ELEWISE_UNDEFINED
    quant_param: QuantParam = field(default_factory=QuantParam)
    muls_param: MulsParam = field(default_factory=MulsParam)
    out_tensor_type: AclDataType = AclDataType.ACL_DT_UNDEFINED


@dataclass(repr=False)
class SoftmaxParam(Param):
    """Softmax over consecutive ``axes``."""

    axes: Int64List = field(default_factory=list)


@dataclass(repr=False)
class CumsumParam(Param):
    """Inclusive prefix sum along one axis."""

    axes: Int64List = field(default_factory=list)
    exclusive: bool = False
    reverse: bool = False


@dataclass(repr=False)
class DynamicNTKParam(Param):
    """Sine and cosine tables of rotary embeddings."""

    out_data_type: AclDataType = field(
        default=AclDataType.ACL_DT_UNDEFINED, metadata={"key": "outputType"}
    )


@dataclass(repr=False)
class FillParam(Param):
    """Masked fill, or a constant tensor of shape ``out_dim``."""

    with_mask: bool = True
    value: Float32List = field(default_factory=list)
    out_dim: Int64List = field(default_factory=list)


@dataclass(repr=False)
class ReduceParam(Param):
    """Maximum, minimum or sum over ``axis``, which disappears."""

    class ReduceType(IntEnum):
        REDUCE_UNDEFINED = 0
        REDUCE_MAX = 1
        REDUCE_MIN = 2
        REDUCE_SUM = 3

    reduce_type: ReduceType = ReduceType.REDUCE_UNDEFINED
    axis: Int64List = field(default_factory=list)


@dataclass(repr=False)
class SwigluQuantParam(Param):
    """Swiglu followed by quantisation per token."""

    class QuantType(IntEnum):
        QUANT_TYPE_PER_TOKEN = 0

    quant_type: QuantType = QuantType.QUANT_TYPE_PER_TOKEN


@dataclass(repr=False)
class WhereParam(Param):
    """Selection by a condition tensor; no fields."""

    prints_json = False


@dataclass(repr=False)
class OnehotParam(Param):
    """One-hot encoding."""

    axis: Int64 = 0
    depth: Int64 = 0


@dataclass(repr=False)
class FusedAddTopkDivParam(Param):
    """Grouped expert selection with normalised weights."""

    group_num: UInt32 = 1
    group_topk: UInt32 = 1
    n: UInt32 = 1
    k: UInt32 = 1
    activation_type: ActivationType = ActivationType.ACTIVATION_SIGMOID
    is_norm: bool = True
    scale: Float32 = 1.0
    enable_expert_mapping: bool = False
