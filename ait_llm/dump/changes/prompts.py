"""Prompts that reach a model in parts, behind a prefix, or without a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.changes.catalogue import NotPossibleError
from ait_llm.dump.changes.rows import IDS

CACHE = "past_key_values"
_LEAST_TOKENS = 3  # of a prompt that is cut
Call = Callable[..., Any]


def token_ids(named: Mapping[str, Any]) -> tuple[str, Tensor]:
    """The token ids of a call, and the name of the argument.

    Raises:
        NotPossibleError: it has none.
    """
    for name in IDS:
        value = named.get(name)
        if isinstance(value, Tensor) and value.dim() == 2:
            return name, value
    raise NotPossibleError("it is called without token ids")


def refuse_draws(model: nn.Module, named: Mapping[str, Any], *, generates: bool) -> None:
    """Refuse a call that draws random numbers, which other rows would draw in another order.

    Raises:
        NotPossibleError: it does.
    """
    if model.training:
        raise NotPossibleError("the model is in training mode, where dropout draws by rows")
    if not generates:
        return
    config = named.get("generation_config") or getattr(model, "generation_config", None)
    sampled = named.get("do_sample", getattr(config, "do_sample", False))
    if sampled:
        raise NotPossibleError("it samples, and other rows draw other numbers; use greedy search")


def in_chunks(
    model: nn.Module, call: Call, named: dict[str, Any], *, generates: bool
) -> Callable[[], Any]:
    """Make a call with its prompt in two parts.

    Raises:
        NotPossibleError: that cannot be done.
    """
    _, ids = token_ids(named)
    length = ids.shape[1]
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise NotPossibleError("its prompt goes through an encoder")
    if length < _LEAST_TOKENS:
        raise NotPossibleError(f"its prompt has {length} tokens")
    if len(ids) > 1:
        raise NotPossibleError("it has several prompts, whose chunks lie between each other")
    size = (length + 1) // 2
    if generates:
        if not hasattr(getattr(model, "generation_config", None), "prefill_chunk_size"):
            raise NotPossibleError("this version of transformers has no prefill_chunk_size")
        return lambda: call(**{**named, "prefill_chunk_size": size})
    return _two_calls(model, call, named, size)


def _two_calls(model: nn.Module, call: Call, named: dict[str, Any], size: int) -> Callable[[], Any]:
    """The second one goes on with the cache of the first."""
    if not getattr(model, "can_generate", bool)():
        raise NotPossibleError("the model does not generate")
    only = {"attention_mask", "use_cache", "return_dict", *IDS}
    others = [each for each, value in named.items() if each not in only and value is not None]
    if others:
        raise NotPossibleError(f"it is called with {others[0]}, which is not cut")

    def make() -> Any:
        name, ids = token_ids(named)
        mask = named.get("attention_mask")
        rest = {key: value for key, value in named.items() if key not in ("attention_mask", name)}
        rest["use_cache"] = True
        given = {} if mask is None else {"attention_mask": mask[:, :size]}
        first = call(**{name: ids[:, :size]}, **given, **rest)
        given = {} if mask is None else {"attention_mask": mask}
        second = call(**{name: ids[:, size:]}, **given, **rest, **{CACHE: first[CACHE]})
        second["logits"] = torch.cat([first["logits"], second["logits"]], 1)
        return second

    return make


def behind_prefix(
    model: nn.Module, call: Call, named: dict[str, Any], *, generates: bool
) -> Callable[[], Any]:
    """Make a call whose prompt begins with what a cache holds already.

    Raises:
        NotPossibleError: that cannot be done.
    """
    if not generates:
        raise NotPossibleError("it is a call of the model itself, and not generate")
    refuse_draws(model, named, generates=True)
    _, ids = token_ids(named)
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise NotPossibleError("its prompt goes through an encoder")
    if ids.shape[1] < _LEAST_TOKENS or named.get(CACHE) is not None:
        raise NotPossibleError("its prompt is short, or it brings a cache of its own")
    size = ids.shape[1] // 2
    mask = named.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise NotPossibleError("its prompt is padded")

    def make() -> Any:
        with torch.no_grad():
            kept = model(input_ids=ids[:, :size], use_cache=True)
        cache = kept.get(CACHE)
        if cache is None:  # what such a model keeps is no prefix
            return call(**named)
        return call(**{**named, CACHE: cache})

    return make


def without_cache(call: Call, named: dict[str, Any], *, generates: bool) -> Callable[[], Any]:
    """Make a call that computes all of its text anew in each step.

    Raises:
        NotPossibleError: that cannot be done.
    """
    if not generates:
        raise NotPossibleError("it is a call of the model itself, and not generate")
    if named.get(CACHE) is not None:
        raise NotPossibleError("it brings a cache of its own")
    return lambda: call(**{**named, "use_cache": False})
