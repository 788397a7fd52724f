"""Operators of torch by name: nodes of FX graphs, of Inductor, of torch-operator captures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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
    "Expand": "expand",  # of ONNX, with sizes that its graph computes
    "Reshape": "reshape",
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
    **dict.fromkeys(("topk", "sort", "argsort"), Role.TOPK),
    "add": Role.ADD,
    "mul": Role.MUL,
    **dict.fromkeys(("npu_swiglu", "swiglu", "geglu"), Role.GATED),
    "all_reduce": Role.COLLECTIVE,
    "all_gather_into_tensor": Role.COLLECTIVE,
    "reduce_scatter_tensor": Role.COLLECTIVE,
    "wait_tensor": Role.COLLECTIVE,
}
# Nodes that compute nothing: their result has the elements of their first argument.
_VIEWS = frozenset(
    {
        *("alias", "as_strided", "broadcast_to", "clone", "contiguous", "detach", "diagonal"),
        *("expand", "expand_as", "flatten", "lift_fresh_copy", "narrow", "permute", "reshape"),
        *("select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t", "to"),
        *("transpose", "unbind", "unfold", "unsqueeze", "view", "view_as", "_reshape_alias"),
        *("_to_copy", "_unsafe_view", "convert_element_type", "strided"),
    }
)
_SIZES = "aten.sym_"  # nodes that ask for a size
_ORDERS = frozenset({"permute", "swapaxes", "t", "transpose"})


@lru_cache(maxsize=1024)  # a program has few kinds of operators
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


def is_view(target: str) -> bool:
    """True for ``aten.view.default`` and other nodes that only look at their first argument."""
    parts = target.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]) in _VIEWS


def reorders(target: str) -> bool:
    """True for ``aten.t.default`` and other views that bring axes into another order."""
    parts = target.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]) in _ORDERS


def computes(target: str) -> bool:
    """False for views, and for nodes that ask for a size: a graph engine has few of them."""
    return not is_view(target) and not target.startswith(_SIZES)
