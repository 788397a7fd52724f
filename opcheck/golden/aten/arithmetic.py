"""How correct kernels of aten operators compute, by name without overload.

What is here was held to torch's own samples of its operators (``scripts/bench/aten_samples.py``),
computed by its CPU kernels in bfloat16, float16 and float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ait_llm.opcheck.golden.aten.kinds import base_name, is_any_nan, is_attention, is_exact
from ait_llm.opcheck.golden.base import (
    ALL_SHORT,
    ATTENTION,
    FLOAT32_KERNEL,
    MOVES,
    PRODUCTS,
    SOME_SHORT,
    KernelArithmetic,
)

# Sums of products of their inputs, or of the inputs alone: linear in each.
_SUMS = frozenset(
    {
        "_grouped_mm",
        "_scaled_mm",
        "_scaled_mm_v2",
        "_weight_int8pack_mm",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "cumsum",
        "dot",
        "linear",
        "matmul",
        "mean",
        "mkldnn_linear",
        "mm",
        "mul_mat",
        "mul_mat_id",
        "mv",
        "sum",
        "trace",
    }
)
# Products of floats of 8 bits, and the place of ``use_fast_accum`` among their arguments.
_OF_EIGHT_BITS = {"_scaled_mm": "7", "_scaled_mm_v2": "11"}
# Kernels may round the real weights that packed ones stand for before they multiply.
_REAL_WEIGHTS = frozenset({"_weight_int4pack_mm_for_cpu"})
# Computed in float32 element by element, or row by row, and rounded once at the end.
_ONCE = frozenset(
    {
        "_fused_rms_norm",
        "_prelu_kernel",
        "_softmax",
        "_safe_softmax",
        "abs",
        "acos",
        "acosh",
        "add",
        "add_",
        "addcdiv",
        "addcmul",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "avg_pool1d",
        "avg_pool2d",
        "ceil",
        "celu",
        "cos",
        "cosh",
        "div",
        "div_",
        "elu",
        "erfc",
        "exp",
        "exp2",
        "exp_",
        "expm1",
        "geglu",
        "floor",
        "fmod",
        "frac",
        "glu",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "hypot",
        "leaky_relu",
        "lerp",
        "linalg_vector_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_sigmoid_forward",
        "logaddexp",
        "mish",
        "mul",
        "mul_",
        "native_group_norm",
        "native_layer_norm",
        "reciprocal",
        "remainder",
        "round",
        "rsub",
        "rope",
        "scatter_add",
        "sigmoid",
        "sigmoid_",
        "silu",
        "silu_",
        "sin",
        "sinh",
        "soft_max",
        "softplus",
        "sqrt",
        "sqrt_",
        "std",
        "sub",
        "sub_",
        "swiglu",
        "tan",
        "tanh",
        "tanh_",
        "threshold",
        "trunc",
        "var",
        "var_mean",
    }
)
# Of those, one operation on each pair of elements: there is nothing to round on the way.
_PAIRS = frozenset({"add", "mul", "sub"})
# Stages between which kernels in use round. Small powers are products, rounded one by one; the
# root is rounded before it is inverted, and so are shifted logits before they are added up.
_STAGES = {
    "_convolution": 4,
    "_native_batch_norm_legit": 2,
    "_native_batch_norm_legit_no_training": 2,
    "conv1d": 4,
    "conv2d": 4,
    "conv3d": 4,
    "convolution": 4,
    "native_batch_norm": 2,
    "pow": 1,
    "pow_": 1,
    "rsqrt": 1,
    "rsqrt_": 1,
}
# What they round on the way is larger than what becomes of it: one logarithm of a sum for each row.
_LOGARITHMS = frozenset({"_log_softmax", "logsumexp"})
# Sums on the way that cancel where a tail begins, in roundings of float32.
_LOST = {
    "erf": KernelArithmetic(lost=8, near_one=True),  # an approximation, taken from one
    "gelu": KernelArithmetic(lost=4),  # x times one plus tanh or erf
}
_TERMS = frozenset({"add", "add_", "sub", "sub_", "rsub"})
_ROWS = frozenset({"_softmax", "_safe_softmax"})
# Operators that nobody has looked at: kernels of them keep any step in 16 bits.
MOST_STAGES = 16
_FACTORS = ("alpha", "beta")
_COMPARING = frozenset({"eq", "ge", "gt", "le", "logical_and", "logical_not", "lt", "ne"})
# Numbers among their arguments say how large their results are.
_GROWING = frozenset(
    {
        "as_strided",
        "broadcast_to",
        "constant_pad_nd",
        "diag",
        "expand",
        "fill_",
        "full",
        "full_like",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "reflection_pad1d",
        "reflection_pad2d",
        "repeat",
        "repeat_interleave",
        "replication_pad1d",
        "replication_pad2d",
        "scalar_tensor",
        "unfold",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "zeros",
        "zeros_like",
    }
)


def kernel_of(type_name: str, plain: Mapping[str, Any]) -> KernelArithmetic:
    """How a correct kernel of an operator computes.

    Args:
        type_name: ``aten.addmm.default``.
        plain: its arguments that are no tensors, by their places (``"1"``) or keywords.
    """
    name = base_name(type_name)
    if is_exact(type_name):
        return replace(MOVES, any_nan=is_any_nan(type_name))
    if is_attention(type_name):
        return ATTENTION
    factors = [plain[word] for word in _FACTORS if word in plain]
    linear = all(isinstance(value, (int, float)) and value >= 1 for value in factors)
    if name in _REAL_WEIGHTS:
        return replace(PRODUCTS, roundings=1)
    if name in _OF_EIGHT_BITS:
        quick = plain.get("use_fast_accum", plain.get(_OF_EIGHT_BITS[name], False))
        return replace(PRODUCTS, short_sums=ALL_SHORT if quick else SOME_SHORT)
    if name in _SUMS:
        return PRODUCTS if linear else FLOAT32_KERNEL
    if name in _LOST:
        return _LOST[name]
    if name in _LOGARITHMS:
        return KernelArithmetic(roundings=2, unknown=True)
    if name in _ONCE:
        # A multiple of the second term, and sums along rows that do not lie together, are stored.
        stored = (name in _TERMS and not linear) or (name in _ROWS and plain.get("1") != -1)
        if stored:
            return KernelArithmetic(roundings=1)
        factor = plain.get("alpha", plain.get("2", 1))
        return KernelArithmetic(once=True) if name in _PAIRS and factor == 1 else FLOAT32_KERNEL
    if name in _STAGES:
        return KernelArithmetic(roundings=_STAGES[name])
    return KernelArithmetic(roundings=MOST_STAGES, unknown=True)


def is_bounded(type_name: str) -> bool:
    """True for operators whose results are about as large as their inputs let expect."""
    name = base_name(type_name)
    known = name in _SUMS | _ONCE | _STAGES.keys() | _COMPARING | _LOST.keys() | _LOGARITHMS
    known |= is_exact(type_name) or is_attention(type_name)
    return known and name not in _GROWING and "conv" not in name and not name.endswith("_")


def is_sum(type_name: str) -> bool:
    """True for operators that add up products, those in attention included."""
    return base_name(type_name) in _SUMS or is_attention(type_name)
