"""What is known of aten operators beyond their schemas, by name without overload."""

from __future__ import annotations

_UNWRITTEN = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize",
        "resize_",
        "resize_as_",
        "set_",
    }
)
_DRAWN = frozenset(
    {
        "_fused_dropout",
        "alpha_dropout",
        "bernoulli",
        "bernoulli_",
        "binomial",
        "cauchy_",
        "dropout",
        "exponential_",
        "feature_dropout",
        "geometric_",
        "log_normal_",
        "multinomial",
        "native_dropout",
        "normal",
        "normal_",
        "normal_functional",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random",
        "random_",
        "randperm",
        "rrelu",
        "rrelu_with_noise",
        "uniform",
        "uniform_",
    }
)
# Of one matrix there are many: vectors may have another sign.
_FACTORS = frozenset(
    {
        "_linalg_eigh",
        "_linalg_svd",
        "geqrf",
        "linalg_eig",
        "linalg_lu",
        "linalg_lu_factor_ex",
        "linalg_qr",
    }
)
# What they make of numbers that rounding moved across an edge is another number altogether.
_JUMPING = frozenset(
    {
        "grid_sampler_2d",
        "grid_sampler_3d",
        "histc",
        "linspace",
        "logspace",
    }
)
# They select, copy or order elements, or pick the larger one: every device does so exactly.
_EXACT = frozenset(
    {
        *("ConstantOfShape", "Expand", "Gather", "GatherND"),  # of ONNX
        *("Range", "Reshape", "Shape", "Slice"),
        *("argsort", "get_rows", "set_rows", "strided"),  # of ggml
        "_reshape_alias",
        "_to_copy",
        "_unsafe_view",
        "abs",
        "alias",
        "amax",
        "amin",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "bitwise_xor",
        "broadcast_to",
        "bucketize",
        "cat",
        "chunk",
        "clamp",
        "clamp_max",
        "clamp_min",
        "clone",
        "constant_pad_nd",
        "contiguous",
        "convert_element_type",
        "copy",
        "copy_",
        "detach",
        "diag",
        "diagonal",
        "embedding",
        "expand",
        "fill",
        "fill_",
        "flip",
        "full",
        "full_like",
        "gather",
        "index",
        "index_copy",
        "index_copy_",
        "index_fill",
        "index_fill_",
        "index_put",
        "index_put_",
        "index_select",
        "kthvalue",
        "lift_fresh",
        "lift_fresh_copy",
        "masked_fill",
        "masked_fill_",
        "masked_scatter",
        "masked_scatter_",
        "masked_select",
        "max",
        "max_pool2d_with_indices",
        "maximum",
        "median",
        "min",
        "minimum",
        "movedim",
        "narrow",
        "neg",
        "new_full",
        "new_ones",
        "new_zeros",
        "nextafter",
        "ones",
        "ones_like",
        "permute",
        "pixel_shuffle",
        "pixel_unshuffle",
        "reflection_pad1d",
        "reflection_pad2d",
        "relu",
        "relu_",
        "repeat",
        "repeat_interleave",
        "replication_pad1d",
        "replication_pad2d",
        "reshape",
        "roll",
        "rot90",
        "scalar_tensor",
        "scatter",
        "scatter_",
        "select",
        "select_scatter",
        "slice",
        "slice_scatter",
        "sort",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "stack",
        "t",
        "take",
        "take_along_dim",
        "topk",
        "transpose",
        "transpose_",
        "tril",
        "tril_",
        "triu",
        "triu_",
        "unbind",
        "unfold",
        "unsafe_chunk",
        "unsafe_split",
        "unsqueeze",
        "unsqueeze_",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "view",
        "view_as",
        "where",
        "zero_",
        "zeros",
        "zeros_like",
    }
)
# Those of them that change type, sign or compare, so that numbers go through arithmetic units: a
# bfloat16 goes through float32 and comes back with another NaN.
_ARITHMETIC = frozenset(
    {
        "_to_copy",
        "abs",
        "amax",
        "amin",
        "clamp",
        "clamp_max",
        "clamp_min",
        "convert_element_type",
        "copy",
        "copy_",
        "kthvalue",
        "max",
        "max_pool2d_with_indices",
        "maximum",
        "median",
        "min",
        "minimum",
        "neg",
        "nextafter",
        "relu",
        "relu_",
        "sort",
        "topk",
    }
)
# What they take from memory depends on strides.
BY_STRIDES = frozenset({"as_strided", "as_strided_copy", "_reshape_alias"})
# Beside their result they return what the backward pass wants, in a type of the kernel's choice.
_STATISTICS = frozenset(
    {
        "_batch_norm_with_update",
        "_ctc_loss",
        "_embedding_bag",
        "_embedding_bag_forward_only",
        "_fused_rms_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_no_training",
        "cudnn_batch_norm",
        "native_batch_norm",
        "native_group_norm",
        "native_layer_norm",
    }
)
# Keeping scores and probabilities in 16 bits is what fast attention does.
_ATTENTION = frozenset(
    {
        "_flash_attention_forward",
        "_efficient_attention_forward",
        "_scaled_dot_product_attention_math",
        "_scaled_dot_product_attention_math_for_mps",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_fused_attention_overrideable",
        "scaled_dot_product_attention",
    }
)


def base_name(type_name: str) -> str:
    """``mm`` of ``aten.mm.default``."""
    return type_name.partition(".")[2].partition(".")[0]


PLACES = "compute places by rounded numbers"


def why_unchecked(type_name: str) -> str:
    """Why the results of an operator do not follow from its inputs; empty where they do."""
    name = base_name(type_name)
    if name in _UNWRITTEN:
        return "hand out memory that nobody has written"
    if name in _DRAWN:
        return "draw random numbers"
    if name in _FACTORS:
        return "may return other factors of the same matrix"
    if name.startswith("as_strided"):
        return "look at memory beyond their tensors"
    return PLACES if name in _JUMPING else ""


def is_exact(type_name: str) -> bool:
    """True for operators whose result is the same, bit by bit, wherever they run."""
    return base_name(type_name) in _EXACT


def is_any_nan(type_name: str) -> bool:
    """True for exact operators that may make another NaN of a NaN."""
    return base_name(type_name) in _ARITHMETIC


def is_attention(type_name: str) -> bool:
    """True for the fused forms of ``softmax(q k' scale + mask) v``."""
    return base_name(type_name) in _ATTENTION


def has_statistics(type_name: str) -> bool:
    """True for operators of which only the first output is a result."""
    return is_attention(type_name) or base_name(type_name) in _STATISTICS
