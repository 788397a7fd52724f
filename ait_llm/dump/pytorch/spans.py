"""Reading from a model's arguments which positions a forward call covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from ait_llm.dump.pytorch.steps import Span

# Where a model has an encoder, the decoder's tokens are those that are counted.
_IDS = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")
_CACHES = ("past_key_values", "past_key_value", "past", "cache", "layer_past")
_STARTS = ("cache_position", "start_pos", "input_pos")


def call_span(args: tuple[Any, ...], named: Mapping[str, Any]) -> Span | None:
    """The positions that a call with these arguments covers, or None if they do not show it.

    Understands the argument names of transformers, ``start_pos`` and ``input_pos`` and, for other
    models, a first positional tensor of token ids ``[batch, sequence]``.

    Args:
        args: positional arguments.
        named: all arguments whose names are known, positional ones among them.
    """
    length = _sequence_length(args, named)
    if length is None:
        return None
    cache = next((named[name] for name in _CACHES if named.get(name) is not None), None)
    start = _cache_length(cache)
    for name in _STARTS:
        position = _first_position(named.get(name))
        if position is not None:
            start = position
            break
    if start is None:
        return Span(0, length, cached=bool(named.get("use_cache", False)))
    return Span(start, length, cached=True)


def _first_position(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, Tensor) and value.numel() and _has_values(value):
        return int(value.reshape(-1)[0])
    return None


def _has_values(tensor: Tensor) -> bool:
    return tensor.device.type != "meta" and not is_fake(tensor)


def _sequence_length(args: tuple[Any, ...], named: Mapping[str, Any]) -> int | None:
    for name in _IDS:
        value = named.get(name)
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
        length = measure()
        return int(length) if not isinstance(length, Tensor) or _has_values(length) else 0
    while isinstance(cache, (tuple, list)) and cache:
        cache = cache[0]
    if isinstance(cache, Tensor) and cache.dim() >= 3:
        return int(cache.shape[-2])
    return 0
