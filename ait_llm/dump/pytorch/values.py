"""Finding the tensors inside whatever a module receives or returns.

Names follow the layout of the product manual: ``output`` for a single tensor, ``output_1_0`` for
``outputs[1][0]``, ``input_attention_mask`` for a keyword argument and ``output_logits`` for a
field of a dictionary, dataclass or ``ModelOutput``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_SAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAMED_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format, complex, slice)
# Deep enough for any model's output; a guard against self-referring objects.
_MAX_DEPTH = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """One value found: a tensor, a plain Python value, or something that cannot be captured.

    Attributes:
        name: file stem, such as ``output_0``.
        tensor: the tensor, if it is one.
        value: a bool, number, string or None that was passed by value.
        reason: why nothing of this value is captured, else an empty string.
    """

    name: str
    tensor: Tensor | None = None
    value: bool | int | float | str | None = None
    reason: str = ""


def leaves(value: Any, name: str, *, layer: int | None = None) -> Iterator[Leaf]:
    """Yield every leaf of ``value`` in a stable order.

    Args:
        value: anything a module's ``forward`` takes or returns.
        name: stem for the whole value.
        layer: where key/value caches are found, yield this layer's tensors only. A cache object
            travels through every layer of a model; each layer answers for its own part.
    """
    yield from _walk(value, name, layer, set(), 0)


def _walk(
    value: Any, name: str, layer: int | None, open_ids: set[int], depth: int
) -> Iterator[Leaf]:
    if isinstance(value, Tensor):
        yield Leaf(name, tensor=value)
        return
    if value is None or isinstance(value, (bool, int, float, str)):
        yield Leaf(name, value=value)
        return
    if isinstance(value, _NAMED_VALUES):
        yield Leaf(name, value=str(value))
        return
    if id(value) in open_ids:
        yield Leaf(name, reason="refers to itself")
        return
    if depth == _MAX_DEPTH:
        yield Leaf(name, reason=f"nested more than {_MAX_DEPTH} levels deep")
        return
    parts = _parts(value, layer)
    if parts is None:
        yield Leaf(
            name, reason=f"object of type {type(value).__module__}.{type(value).__qualname__}"
        )
        return
    open_ids.add(id(value))
    for key, part in parts:
        yield from _walk(part, f"{name}_{_SAFE.sub('-', str(key))}", layer, open_ids, depth + 1)
    open_ids.discard(id(value))


def _parts(value: Any, layer: int | None) -> list[tuple[Any, Any]] | None:
    """The named parts of a container, or None for an opaque object."""
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    cache = _cache_parts(value, layer)
    if cache is not None:
        return cache
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _cache_parts(value: Any, layer: int | None) -> list[tuple[Any, Any]] | None:
    """Keys and values of a transformers ``Cache``, by layer, for its present and older forms.

    Recognised by shape, not by class, so that capture does not import transformers.
    """
    if hasattr(value, "self_attention_cache") and hasattr(value, "cross_attention_cache"):
        return [
            ("self", value.self_attention_cache),
            ("cross", value.cross_attention_cache),
        ]
    layers = getattr(value, "layers", None)
    if isinstance(layers, list) and (layers or hasattr(value, "get_seq_length")):
        states = [_layer_states(item) for item in layers]
    elif hasattr(value, "key_cache") and hasattr(value, "value_cache"):
        pairs = zip(value.key_cache, value.value_cache, strict=False)
        states = [[("key", key), ("value", item)] for key, item in pairs]
    else:
        return None
    if any(state is None for state in states):
        return None
    if layer is not None:
        return states[layer] if layer < len(states) else []
    return [
        (f"{number}_{name}", state)
        for number, layer_states in enumerate(states)
        for name, state in layer_states or ()
    ]


def _layer_states(item: Any) -> list[tuple[str, Any]] | None:
    """What one layer of a cache holds; None if it is no layer of a cache."""
    found = [
        (name, getattr(item, attribute))
        for attribute, name in _CACHE_STATES.items()
        if hasattr(item, attribute)
    ]
    return found or None


# Attention layers keep keys and values, linear attention and state space layers keep states.
_CACHE_STATES = {
    "keys": "key",
    "values": "value",
    "conv_states": "conv",
    "recurrent_states": "recurrent",
}
