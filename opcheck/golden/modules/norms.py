"""Norms."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.modules.engines import norm_and_sum
from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

# Their weight is the distance from one.
_CENTRED = frozenset(
    {
        "Gemma2RMSNorm",
        "Gemma3RMSNorm",
        "GemmaRMSNorm",
        "Qwen3NextRMSNorm",
        "Qwen3_5MoeRMSNorm",
        "Qwen3_5RMSNorm",
        "RecurrentGemmaRMSNorm",
        "T5Gemma2RMSNorm",
        "T5GemmaRMSNorm",
        "VaultGemmaRMSNorm",
    }
)
# They call their small number ``eps`` and multiply by the weight as it is.
_PLAIN = frozenset({"Llama4TextRMSNorm"})


@module("LayerNorm", "FusedLayerNorm")
def _layer_norm(given: Given) -> Compute | None:
    shape, eps = given.definition.get("normalized_shape"), given.number("eps")
    affine = given.definition.get("elementwise_affine")
    if not given.takes((), ["weight", "bias"]) or not isinstance(shape, list) or eps is None:
        return None
    if affine is not ("weight" in given.weights):
        return None
    if given.definition.get("bias", "bias" in given.weights) is not ("bias" in given.weights):
        return None
    return lambda t: functional.layer_norm(
        only(t, given), shape, t.get("weight"), t.get("bias"), eps
    )


@module("GroupNorm")
def _group_norm(given: Given) -> Compute | None:
    groups, eps = given.number("num_groups"), given.number("eps")
    if not given.takes((), ["weight", "bias"]) or groups is None or eps is None:
        return None
    if given.definition.get("affine") is not ("weight" in given.weights):
        return None
    return lambda t: functional.group_norm(
        only(t, given), int(groups), t.get("weight"), t.get("bias"), eps
    )


@module("RMSNorm")
def _rms_norm_of_that_name(given: Given) -> Compute | None:
    """That of torch, litgpt or vLLM, by what it says of itself."""
    shape, eps = given.definition.get("normalized_shape"), given.definition.get("eps")
    if isinstance(shape, list):
        if not given.takes((), ["weight"]) or not (eps is None or isinstance(eps, float)):
            return None
        if given.definition.get("elementwise_affine") is not ("weight" in given.weights):
            return None
        return lambda t: functional.rms_norm(only(t, given), shape, t.get("weight"), eps)
    one_is_added = given.definition.get("add_unit_offset")
    number = given.number("eps")
    if type(one_is_added) is bool and number is not None and given.definition.get("dim") == -1:
        return _rms(given, number, centred=one_is_added)
    epsilon = given.number("variance_epsilon")
    if epsilon is None or given.number("hidden_size") is None:
        return None
    if given.definition.get("variance_size_override") is not None:
        return None
    return _rms(given, epsilon, centred=False)


@module(
    "Kosmos2_5LayerNorm",
    "LongT5LayerNorm",
    "MT5LayerNorm",
    "Pix2StructLayerNorm",
    "Pop2PianoLayerNorm",
    "SwitchTransformersLayerNorm",
    "T5LayerNorm",
    "UMT5LayerNorm",
    "UdopLayerNorm",
    weights=True,
)
def _t5_norm(given: Given) -> Compute | None:
    """An RMS norm by the name of the other kind."""
    eps = given.number("variance_epsilon")
    return None if eps is None else _rms(given, eps, centred=False)


def rms_norm(given: Given) -> Compute | None:
    """A class of ``transformers`` that ends with RMSNorm.

    All that have ``variance_epsilon`` multiply by their weight. Of those that have ``eps`` some
    add one to it; which do is known by name.
    """
    eps, variance_epsilon = given.number("eps"), given.number("variance_epsilon")
    if given.type in _CENTRED:
        number = eps if variance_epsilon is None else variance_epsilon
        return None if number is None else _rms(given, number, centred=True)
    if variance_epsilon is not None:
        return _rms(given, variance_epsilon, centred=False)
    return _rms(given, eps, centred=False) if eps is not None and given.type in _PLAIN else None


def _rms(given: Given, eps: float, *, centred: bool) -> Compute | None:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` in float32, rounded before and after the weight."""
    if len(given.inputs) > 1:
        return norm_and_sum(given, eps, centred=centred)
    if not given.takes(["weight"]) or len(given.weights["weight"]) != 1:
        return None

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        given_x, weight = only(tensors, given), tensors["weight"]
        x = given_x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        if centred:
            return (x * (1.0 + weight.to(torch.float32))).to(given_x.dtype)
        return weight * x.to(given_x.dtype)

    return compute
