"""Operators of the graph engine in the words of torch.

Source: operator prototypes of CANN (``RmsNorm``, ``RotaryPositionEmbedding``, …) and what the
converters of torchair make of ATen operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ait_llm.program.roles import Role
from ait_llm.program.roles_fx import fx_role

_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("MatMul", "MatMulV2", "MatMulV3"), "mm"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), "bmm"),
    **dict.fromkeys(("Add", "AddV2", "Adds", "Axpy"), "add"),
    **dict.fromkeys(("Mul", "Muls"), "mul"),
    **dict.fromkeys(("Div", "RealDiv"), "div"),
    **dict.fromkeys(("ReduceMean", "ReduceMeanD"), "mean"),
    **dict.fromkeys(("SoftmaxV2", "Softmax"), "softmax"),
    **dict.fromkeys(("Gelu", "GeluV2"), "gelu"),
    **dict.fromkeys(("GatherV2", "Gather", "GatherV3", "EmbeddingDenseGrad"), "embedding"),
    **dict.fromkeys(("ConcatV2", "ConcatV2D", "ConcatD", "Concat"), "cat"),
    **dict.fromkeys(("SplitV", "SplitVD", "Split", "SplitD"), "split"),
    **dict.fromkeys(("StridedSlice", "StridedSliceV3", "Slice", "SliceD"), "slice"),
    **dict.fromkeys(("Transpose", "TransposeD", "Permute"), "permute"),
    **dict.fromkeys(("Reshape", "FlattenV2", "Flatten"), "view"),
    **dict.fromkeys(("Unsqueeze", "ExpandDims", "UnsqueezeV2", "UnsqueezeV3"), "unsqueeze"),
    **dict.fromkeys(("Squeeze", "SqueezeV2", "SqueezeV3"), "squeeze"),
    **dict.fromkeys(("BroadcastTo", "Expand", "ExpandD"), "expand"),
    **dict.fromkeys(("Identity", "TransData", "TensorMove", "DropOutDoMaskV3"), "identity"),
    **dict.fromkeys(("LayerNorm", "LayerNormV3", "LayerNormV4"), "layer_norm"),
    **dict.fromkeys(("AddRmsNorm", "AddRmsNormCast"), "add_rms_norm"),
    **dict.fromkeys(("RotaryPositionEmbedding", "RotaryMul"), "rotary"),
    **dict.fromkeys(("ApplyRotaryPosEmb", "ApplyRotaryPosEmbV2"), "apply_rotary"),
    **dict.fromkeys(
        (
            "PromptFlashAttention",
            "IncreFlashAttention",
            "FusedInferAttentionScore",
            "FlashAttentionScore",
        ),
        "flash_attention",
    ),
    **dict.fromkeys(("Select", "SelectV2"), "where"),
    **dict.fromkeys(("Scatter", "ScatterUpdate", "ScatterNdUpdate", "IndexPutV2"), "index_put"),
    "AddLayerNorm": "add_layer_norm",
    "Cast": "to",
    "Erf": "erf",
    "MaskedFill": "masked_fill",
    "Neg": "neg",
    "Pow": "pow",
    "Relu": "relu",
    "RmsNorm": "rms_norm",
    "Rsqrt": "rsqrt",
    "Sigmoid": "sigmoid",
    "Sqrt": "sqrt",
    "Square": "square",
    "Sub": "sub",
    "SwiGlu": "swiglu",
    "Swish": "silu",
    "Tanh": "tanh",
    "TopKV2": "topk",
}
_ROLES: Mapping[str, Role] = {
    "add_layer_norm": Role.NORM,
    "add_rms_norm": Role.NORM,
    "apply_rotary": Role.ROTARY,
    "flash_attention": Role.CORE,
    "index_put": Role.CACHE,
    "rotary": Role.ROTARY,
    "swiglu": Role.GATED,
}
# Attributes that hold a number which the words of torch have as an argument.
_NUMBERS = ("value", "epsilon", "eps")


def kind_of(operator: str, attributes: Mapping[str, Any]) -> str:
    """What an operator computes, in the words of torch; its own name where they have none.

    Args:
        operator: ``MatMulV2``.
        attributes: of the operator.
    """
    kind = _KINDS.get(operator, operator)
    if kind == "mm" and attributes.get("transpose_x2"):
        return "linear"  # reads its weight as [out, in]
    return kind


def numbers_of(attributes: Mapping[str, Any]) -> tuple[float, ...]:
    """Plain numbers among the attributes: the factor of ``Muls``, the epsilon of a norm."""
    found = (attributes.get(name) for name in _NUMBERS)
    return tuple(float(each) for each in found if isinstance(each, int | float))


def ge_role(operator: str, attributes: Mapping[str, Any]) -> Role:
    """What one operator does by itself; several make a composite together."""
    kind = kind_of(operator, attributes)
    return _ROLES.get(kind) or fx_role(f"aten.{kind}.default")
