"""Reading from a model's arguments which positions a forward call covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ait_llm.dump.pytorch.steps import Span

_IDS = ("input_ids", "decoder_input_ids", "inputs_embeds", "decoder_inputs_embeds")
_CACHES = ("past_key_values", "past_key_value", "past", "cache", "layer_past")


def call_span(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Span | None:
    """The positions that a call with these arguments covers, or None if they do not show it.

    Understands the argument names of transformers and, for other models, a first positional
    tensor of token ids ``[batch, sequence]``.
    """
    length = _sequence_length(args, kwargs)
    if length is None:
        return None
    cache = next((kwargs[name] for name in _CACHES if kwargs.get(name) is not None), None)
    start = _cache_length(cache)
    position = kwargs.get("cache_position")
    if isinstance(position, Tensor) and position.numel() and position.device.type != "meta":
        start = int(position.reshape(-1)[0])
    if start is None:
        return Span(0, length, cached=bool(kwargs.get("use_cache", False)))
    return Span(start, length, cached=True)


def _sequence_length(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    for name in _IDS:
        value = kwargs.get(name)
        if isinstance(value, Tensor) and value.dim() >= 2:
            return int(value.shape[1])
    first = args[0] if args else None
    if isinstance(first, Tensor) and first.dim() == 2 and not first.dtype.is_floating_point:
        return int(first.shape[1])
    return None


def _cache_length(cache: Any) -> int | None:
    """Tokens already in a cache object or in legacy tuples; None for no cache."""
    if cache is None:
        return None
    measure = getattr(cache, "get_seq_length", None)
    if callable(measure):
        return int(measure())
    while isinstance(cache, (tuple, list)) and cache:
        cache = cache[0]
    if isinstance(cache, Tensor) and cache.dim() >= 3:
        return int(cache.shape[-2])
    return 0
