"""Attention and rotary positions in single nodes, as onnxruntime-genai and its kin export them."""

from __future__ import annotations

from typing import Any

from ait_llm.dump.onnx.node import Named, Node

# Those behind are positions, a bias, sinks, scales of a quantised cache, and weights of norms.
_INPUTS = 9
_OF_OTHER_INPUTS = ("qk_norm_epsilon",)
_OPTIONS = (
    "num_heads", "kv_num_heads", "scale", "softcap", "do_rotary", "rotary_interleaved",
    "local_window_size",
)  # fmt: skip
# What its other attributes say where they change nothing.
_PLAIN = {
    "smooth_softmax": (0, -1),
    "qk_output": (0,),
    "k_quant_type": ("NONE",),
    "v_quant_type": ("NONE",),
    "kv_cache_bit_width": (0,),
    "sliding_window_cache": (0,),
    "causal": (1,),
}


def grouped_attention(node: Node) -> tuple[Any, ...] | None:
    """The operator that ``opcheck/golden/onnx_attention.py`` defines; None with rarer parts."""
    if any(node.inputs[_INPUTS:]) or any(node.outputs[3:]):
        return None
    for name, value in node.options.items():
        if name not in (*_OPTIONS, *_OF_OTHER_INPUTS) and value not in _PLAIN.get(name, ()):
            return None
    args = [Named(name) if name else None for name in node.inputs[:_INPUTS]]
    options = {name: value for name, value in node.options.items() if name in _OPTIONS}
    return "ait_onnx.ms_GroupQueryAttention.default", *args, options


def attention(node: Node) -> tuple[Any, ...] | None:
    """``MultiHeadAttention`` of separate queries, keys and values; None with rarer parts."""
    if len(node.inputs) < 3 or not all(node.inputs[:3]) or any(node.inputs[8:]):
        return None
    named = [bool(name) for name in node.outputs[1:]]
    if node.ranks.get(node.inputs[0]) not in (None, 3) or named not in ([], [True, True]):
        return None
    if not node.options.keys() <= {"num_heads", "mask_filter_value", "scale", "unidirectional"}:
        return None
    args = [Named(name) if name else None for name in node.inputs]
    overload = "present" if named else "default"
    return f"ait_onnx.ms_MultiHeadAttention.{overload}", *args, dict(node.options)


def rotary(node: Node) -> tuple[Any, ...] | None:
    """``RotaryEmbedding`` of requests that are not packed, and not scaled."""
    options = dict(node.options)
    if options.pop("is_packed_batching", 0) or options.pop("scale", 1.0) != 1.0:
        return None
    if not options.keys() <= {"interleaved", "num_heads", "rotary_embedding_dim"}:
        return None
    return "ait_onnx.ms_RotaryEmbedding.default", *map(Named, node.inputs), options
