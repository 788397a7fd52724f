"""Plain arguments of operators that decide what they compute: a factor, an epsilon, a scale.

Sizes, dims and places follow from shapes and are written in many ways, so that they say nothing
about two programs; types and devices say nothing about values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ait_llm.dumps.model import Operation
from ait_llm.judge.definition_meanings import Plain, Stated
from ait_llm.program.describe import is_float, params_of, shape_of
from ait_llm.program.operators import kind_of
from ait_llm.program.roles import is_operator

_FACTOR, _ATTENTION = "number", "attention"
# By operator: which arguments decide, by position and by keyword, and what they are called.
_NUMBERS = {"1": _FACTOR, "other": _FACTOR, "alpha": "alpha"}
_DECIDING: Mapping[str, Mapping[str, str]] = {
    **{key: {**_NUMBERS, "2": "alpha"} for key in ("add", "sub", "mul", "div", "rsub")},
    "pow": {"0": _FACTOR, "1": "exponent", "exponent": "exponent"},
    "native_layer_norm": {"4": "eps", "eps": "eps"},
    "layer_norm": {"4": "eps", "eps": "eps"},
    "rms_norm": {"3": "eps", "eps": "eps"},
    "_fused_rms_norm": {"3": "eps", "eps": "eps"},
    "native_group_norm": {"6": "group", "7": "eps", "group": "group", "eps": "eps"},
    "gelu": {"approximate": "approximate"},
    "leaky_relu": {"1": "negative_slope", "negative_slope": "negative_slope"},
    "softplus": {"1": "beta", "2": "threshold", "beta": "beta", "threshold": "threshold"},
    "addmm": {"beta": "beta", "alpha": "alpha"},
    "baddbmm": {"beta": "beta", "alpha": "alpha"},
    "topk": {"1": "k", "k": "k"},
    "tril": {"1": "diagonal", "diagonal": "diagonal"},
    "triu": {"1": "diagonal", "diagonal": "diagonal"},
    "scaled_dot_product_attention": {"5": "is_causal"},
    "_scaled_dot_product_flash_attention_for_cpu": {"4": "is_causal"},
    "_scaled_dot_product_flash_attention": {"4": "is_causal"},
    "_scaled_dot_product_efficient_attention": {"6": "is_causal"},
}
_OF_MASKS = frozenset({"tril", "triu"})  # which may be of any type
_COUNTS = frozenset({"diagonal", "group", "k"})  # are said as whole numbers
_CHOOSING = frozenset({"topk"})
_OF_ATTENTION = {"is_causal": "is_causal", "scale": "scale"}
_DEFAULTS: Mapping[str, Plain] = {
    "alpha": 1.0,
    "beta": 1.0,
    "is_causal": False,
    "approximate": "none",
    "diagonal": 0,
}


def is_attention(operation: Operation) -> bool:
    """True for the attention operators of torch."""
    return "scaled_dot_product" in kind_of(operation)


def counts(operation: Operation) -> bool:
    """True for an operator that states how many values it chooses: `topk`."""
    return kind_of(operation) in _CHOOSING and is_operator(operation)


def arguments(operation: Operation) -> dict[str, Stated]:
    """The plain arguments that decide what an operator computes, by what they are called.

    Those that were not given have their defaults.
    """
    given = {_place(name): value for name, value in params_of(operation).items()}
    kind = kind_of(operation)
    table = dict(_DECIDING.get(kind, {}))
    if is_attention(operation):
        table |= _OF_ATTENTION
    if not table or not (kind in _OF_MASKS or any(map(is_float, operation.outputs))):
        return {}
    found: dict[str, Stated] = {}
    for place, name in table.items():
        value = _plain(given.get(place), is_count=name in _COUNTS)
        if value is not None:
            found[name] = Stated("" if name == _FACTOR else name, value)
    for name in set(table.values()) & set(_DEFAULTS):
        found.setdefault(name, Stated(name, _DEFAULTS[name]))
    if is_attention(operation):
        width = (shape_of(operation.inputs[0]) or (0,))[-1] if operation.inputs else 0
        if width:
            found.setdefault("scale", Stated("scale", 1 / math.sqrt(width)))
    return found


def _place(name: str) -> str:
    return name.removeprefix("input_")


def _plain(value: Any, *, is_count: bool) -> Plain:
    if isinstance(value, (bool, str)) or (is_count and isinstance(value, int)):
        return value
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    return None
