"""Operators of torch by name: nodes of FX graphs, of Inductor, of torch-operator captures."""

from __future__ import annotations

from collections.abc import Mapping

from ait_llm.program.roles import Role

# Spellings of one operator.
_SAME: Mapping[str, str] = {
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_fused_rms_norm": "rms_norm",
    "native_layer_norm": "layer_norm",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "subtract": "sub",
    "concat": "cat",
    "concatenate": "cat",
    "negative": "neg",
    "native_dropout": "dropout",
    "index_select": "embedding",
}
_ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("linear", "addmm", "mm", "matmul", "bmm", "baddbmm"), Role.LINEAR),
    **dict.fromkeys(("rms_norm", "layer_norm", "group_norm", "batch_norm"), Role.NORM),
    **dict.fromkeys(("silu", "gelu", "relu", "elu", "mish", "leaky_relu"), Role.ACTIVATION),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unbind"), Role.SPLIT),
    **dict.fromkeys(("_grouped_mm", "grouped_mm"), Role.EXPERT),
    **dict.fromkeys(("npu_rotary_mul", "npu_apply_rotary_pos_emb"), Role.ROTARY),
    "embedding": Role.EMBEDDING,
    "softmax": Role.SOFTMAX,
    "topk": Role.TOPK,
    "add": Role.ADD,
    "mul": Role.MUL,
    "npu_swiglu": Role.GATED,
    "all_reduce": Role.COLLECTIVE,
    "all_gather_into_tensor": Role.COLLECTIVE,
    "reduce_scatter_tensor": Role.COLLECTIVE,
    "wait_tensor": Role.COLLECTIVE,
}


def kind_of(target: str) -> str:
    """``aten._softmax.default`` as ``softmax``: no namespace, overload or in-place mark."""
    parts = target.split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    if name.endswith("_") and not name.startswith("__"):
        name = name[:-1]
    return _SAME.get(name, name)


def fx_role(target: str) -> Role:
    """What one operator does by itself; several make a composite together."""
    kind = kind_of(target)
    if "scaled_dot_product" in kind or "flash_attention" in kind or "fusion_attention" in kind:
        return Role.CORE
    return _ROLES.get(kind, Role.OPERATOR)
