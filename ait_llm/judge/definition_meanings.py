"""What attributes mean, whatever a library calls them.

``eps``, ``variance_epsilon`` and ``rms_norm_eps`` of a norm are one number. A name means something
in operations of one sort only: ``scale`` of attention is not ``scale`` of an embedding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ait_llm.dumps.model import Operation
from ait_llm.program.describe import params_of

Plain = float | int | str | bool | None
# Sorts of operations by words in their types; the first that is found decides.
_SORTS = (
    ("norm", r"norm"),
    ("rotary", r"rotary|rope(?![a-z])"),
    ("activation", r"silu|swiglu|geglu|gelu|relu|swish|mish|activation"),
    ("attention", r"attention|attn"),
    ("embedding", r"embedding"),
    ("router", r"router|topk"),
)
# Functions by the name of a class or of a function; the first that is found decides.
_FUNCTIONS = (
    ("quick_gelu", r"quick_?gelu"),
    ("gelu_tanh", r"gelu_?(pytorch_?)?tanh|newgelu|gelu_?new|fast_?gelu|gelu_?fast"),
    ("gelu_tanh", r"accurate_?gelu|gelu_?accurate"),
    ("gelu_clipped", r"clipped_?gelu|gelu_?10"),
    ("hard_swish", r"hard_?(swish|silu)"),
    ("silu", r"silu|swish|swiglu"),
    ("gelu", r"gelu|geglu"),
    ("relu2", r"relu_?(squared|2)"),
    ("relu6", r"relu6"),
    ("leaky_relu", r"leaky_?relu"),
    ("relu", r"(?<![a-z])relu"),
    ("mish", r"mish"),
)
_CHOICES = frozenset({"act", "act_fn", "activation", "activation_fn", "hidden_act", "function"})
# Which of the parameters of an RMS norm of ATB count, by its layer type.
_ATB_NORMS = {1: "normParam", 2: "preNormParam", 3: "postNormParam"}


@dataclass(frozen=True, slots=True)
class Stated:
    """One attribute as one side states it.

    Attributes:
        name: what it is called there; empty if the class itself says it.
        value: what it is.
    """

    name: str
    value: Plain


def _positive(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None


def _real(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


Reading = Callable[[Any], Plain]
# By sort of operation: the meaning, how its value is read, and its names, the surest first.
_MEANINGS: Mapping[str, tuple[tuple[str, Reading, tuple[str, ...]], ...]] = {
    "norm": (
        (
            "epsilon",
            _positive,
            ("variance_epsilon", "rms_norm_eps", "layer_norm_eps", "norm_eps", "epsilon", "eps"),
        ),
    ),
    "attention": (
        (
            "scale",
            _real,
            (
                "scaling",
                "softmax_scale",
                "sm_scale",
                "attn_scale",
                "qkScale",
                "scale",
                "impl.scale",
            ),
        ),
        (
            "softcap",
            _positive,
            (
                "attn_logit_softcapping",
                "attn_logit_softcap",
                "logits_soft_cap",
                "impl.logits_soft_cap",
            ),
        ),
        ("heads", _count, ("total_num_heads", "num_attention_heads", "num_heads", "n_heads")),
        ("key-value heads", _count, ("total_num_kv_heads", "num_key_value_heads", "num_kv_heads")),
        ("base", _positive, ("rope_theta",)),
    ),
    "rotary": (
        ("base", _positive, ("rope_theta", "rotary_emb_base", "rope_base", "theta", "base")),
        ("pairs of halves", _flag, ("is_neox_style",)),
    ),
    "embedding": (("scale", _real, ("scalar_embed_scale", "embed_scale")),),
    "router": (
        ("choices", _count, ("num_experts_per_tok", "top_k", "topk")),
        ("renormalised", _flag, ("norm_topk_prob", "renormalize")),
        ("scale", _real, ("routed_scaling_factor",)),
    ),
}
_COUNTED = frozenset({"heads", "key-value heads"})
_KNOWN = frozenset(
    name for meanings in _MEANINGS.values() for _, _, names in meanings for name in names
)
# Names that say what is computed, also where only one library has them.
_DECIDING = (
    _KNOWN
    | _CHOICES
    | {
        "add_unit_offset",
        "alpha",
        "approximate",
        "attention_multiplier",
        "attention_scaling",
        "embedding_multiplier",
        "final_logit_softcapping",
        "is_causal",
        "layer_type",
        "limit",
        "logit_scale",
        "logits_scaling",
        "mscale",
        "num_key_value_groups",
        "qScale",
        "query_pre_attn_scalar",
        "relative_attention_max_distance",
        "relative_attention_num_buckets",
        "residual_multiplier",
        "rope_type",
        "rotary_dim",
        "rotary_ndims",
        "scoring_func",
        "sliding_window",
        "soft_cap",
        "transposeA",
        "transposeB",
        "use_parallel_residual",
    }
)
# Numbers that results, or what goes into a function, are multiplied by.
_FACTORS = frozenset(
    {
        "alpha",
        "attention_multiplier",
        "embed_scale",
        "embedding_multiplier",
        "logit_scale",
        "logits_scaling",
        "residual_multiplier",
        "routed_scaling_factor",
        "scalar_embed_scale",
        "scaling",
        "softmax_scale",
    }
)
_DEPTHS = frozenset({"num_hidden_layers", "num_layers", "n_layer", "n_layers"})
# One for each sort of layers, where they differ: ``sliding_attention_attention_scaling``.
_ROTARY_FACTOR = "attention_scaling"


def sort_of(operation: Operation) -> str:
    """``norm``, ``attention`` and so on, by the type; empty for what has no sort."""
    return sort_of_type(operation.type)


def sort_of_type(name: str) -> str:
    """The sort of operations of a type."""
    if name.count(".") >= 2:  # an operator
        return ""
    text = name.lower()
    return next((sort for sort, pattern in _SORTS if re.search(pattern, text)), "")


def is_deciding(name: str) -> bool:
    """True for an attribute that is known to decide values, by the last part of its name."""
    last = name.rpartition(".")[2]
    return last in _DECIDING or last.endswith(_ROTARY_FACTOR)


def is_depth(name: str) -> bool:
    """True for the number of layers of a model."""
    return name.rpartition(".")[2] in _DEPTHS


def is_factor(name: str) -> bool:
    """True for a number that something is multiplied by, whatever else an operation does."""
    last = name.rpartition(".")[2]
    return last in _FACTORS or last.endswith(_ROTARY_FACTOR)


def stated(operation: Operation, *, is_whole: bool) -> dict[str, Stated]:
    """What an operation states of itself, by meaning.

    Args:
        operation: a module, or an operation of ATB.
        is_whole: its process computes all of it; numbers of heads of a share mean another thing.
    """
    sort = sort_of(operation)
    attributes = _attributes(operation)
    found: dict[str, Stated] = {}
    for meaning, read, names in _MEANINGS.get(sort, ()):
        if meaning in _COUNTED and not is_whole:
            continue
        known = ((name, read(attributes[name])) for name in names if name in attributes)
        first = next(((name, value) for name, value in known if value is not None), None)
        if first is not None:
            found[meaning] = Stated(*first)
    if sort == "activation":
        found |= _function(operation, attributes)
    return found


def function_named(text: str) -> str | None:
    """The activation function that a class or function is called after."""
    lower = text.lower()
    return next((name for name, pattern in _FUNCTIONS if re.search(pattern, lower)), None)


def _function(operation: Operation, attributes: Mapping[str, Any]) -> Iterator[tuple[str, Stated]]:
    name = function_named(operation.type)
    said = ""
    if name is None:
        texts = ((key, attributes[key]) for key in _CHOICES if isinstance(attributes.get(key), str))
        said, name = next(
            ((key, known) for key, text in texts if (known := function_named(text))), ("", None)
        )
    if name == "gelu" and attributes.get("approximate") == "tanh":
        name, said = "gelu_tanh", "approximate"
    if name is not None:
        yield "function", Stated(said, name)


def _attributes(operation: Operation) -> Mapping[str, Any]:
    """Attributes of a module, parameters of an operation of ATB."""
    known = operation.definition
    if known:
        return known
    params = params_of(operation)
    kind = params.get("layerType")
    chosen = params.get(_ATB_NORMS.get(kind, "")) if isinstance(kind, int) else None
    if isinstance(chosen, Mapping):
        return {**params, **chosen}
    scales = params.get("qkScale"), params.get("qScale")
    if isinstance(scales[0], float) and isinstance(scales[1], float):
        return {**params, "qkScale": scales[0] * scales[1]}
    return params
