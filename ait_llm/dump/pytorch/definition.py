"""What decides what a module computes, as far as its attributes say it plainly.

Numbers, flags, texts and names: ``eps``, ``num_heads``, ``scaling``, ``is_causal``, ``layer_idx``,
``approximate``, whether there is a bias, and the model's ``config``. Tensors and private attributes
are left out, and nothing is called: a property could compute.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import types
from collections.abc import Container, Iterator, Mapping
from typing import Any

import torch
from torch import nn

_MAX_ATTRIBUTES = 100
_MAX_CONFIG = 300
_MAX_ITEMS = 32
_MAX_TEXT = 200
_MAX_DEPTH = 3
# Objects that are known by what they are: how weights are quantised, how attention is computed.
_BY_CLASS = frozenset(
    {
        "attn_backend",
        "experts_cls",
        "impl",
        "quant_config",
        "quant_method",
        "quantizer",
        "router",
        "scheme",
    }
)
# What computes in the module's place, or says how: its own attributes are told as ``impl.scale``.
_TOLD_INSIDE = ("impl", "moe_config", "moe_config.moe_parallel_config")
_TOLD_OF_CLASS = ("state", "MatmulLtState")  # of bitsandbytes
# Of a quantised weight, what says that its inputs are quantised, too.
_OF_INPUTS = frozenset({"act_quant_kwargs", "act_pre_scale", "activation_quantization"})
# Changes between calls, and is no part of what the author of a model wrote; calls have it.
MODE = "training"
_BY_MODE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


class _Unknown:
    """In place of a value that is not plain."""


_UNKNOWN = _Unknown()


class Definitions:
    """The definitions of the modules of one model, each configuration told once.

    Layers share one configuration object; it is told where it is met first, as ``config.NAME``.
    """

    def __init__(self) -> None:
        self._told: set[int] = set()

    def of(self, module: nn.Module) -> dict[str, Any]:
        """What is known of a module, in types of JSON."""
        entries = itertools.chain(_parameters(module), _attributes(module))
        found = dict(itertools.islice(entries, _MAX_ATTRIBUTES))
        config = vars(module).get("config")
        if config is not None and id(config) not in self._told:
            self._told.add(id(config))
            told = itertools.islice(_members(config), _MAX_CONFIG)
            found |= {f"config.{name}": value for name, value in told}
        return found


def depends_on_mode(module: nn.Module) -> bool:
    """True if a module may compute something else while it trains."""
    return isinstance(module, _BY_MODE) or any("dropout" in name for name in vars(module))


def _parameters(module: nn.Module) -> Iterator[tuple[str, Any]]:
    if "bias" in module._parameters:
        yield "bias", module._parameters["bias"] is not None
    for name, parameter in module._parameters.items():
        if hasattr(type(parameter), "__tensor_flatten__"):  # it wraps what it is stored as
            yield f"{name}.type", type(parameter).__qualname__[:_MAX_TEXT]
            for key, value in _own_members(parameter, _OF_INPUTS):
                yield f"{name}.{key}", value
                if key in _OF_INPUTS:
                    inside = _members(vars(parameter)[key])
                    yield from ((f"{name}.{key}.{each}", told) for each, told in inside)


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in _own_members(module, _BY_CLASS):
        if name not in (MODE, "config"):
            yield name, value
    name, kind = _TOLD_OF_CLASS
    if type(vars(module).get(name)).__name__ == kind:
        yield from ((f"{name}.{key}", value) for key, value in _members(vars(module)[name]))
    for path in _TOLD_INSIDE:
        inside: Any = module
        for name in path.split("."):
            inside = getattr(inside, "__dict__", {}).get(name)
        if inside is not None and _plain(inside) is _UNKNOWN:
            yield from ((f"{path}.{key}", value) for key, value in _members(inside))


def _own_members(owner: object, by_class: Container[str]) -> Iterator[tuple[str, Any]]:
    """The plain public attributes of an object; some others by the name of their class."""
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        known = _plain(value)
        if known is _UNKNOWN and name in by_class:
            known = (value if isinstance(value, type) else type(value)).__qualname__[:_MAX_TEXT]
        if known is not _UNKNOWN:
            yield name, known


def _members(config: Any) -> Iterator[tuple[str, Any]]:
    """The plain attributes of a configuration, or entries of one that is a mapping."""
    try:
        members = config if isinstance(config, Mapping) else vars(config)
    except TypeError:  # an object without attributes of its own
        return
    for name, value in members.items():
        if isinstance(name, str) and not name.startswith("_"):
            known = _plain(value)
            if known is not _UNKNOWN:
                yield name[:_MAX_TEXT], known


def _plain(value: Any, depth: int = 0) -> Any:
    """A value in types of JSON; :data:`_UNKNOWN` for what is not plain, or too much."""
    if isinstance(value, enum.Enum):
        return str(value.name)[:_MAX_TEXT]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else _UNKNOWN
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)[:_MAX_TEXT]
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, _FUNCTIONS):
        return _function_name(value)
    if depth == _MAX_DEPTH:
        return _UNKNOWN
    if isinstance(value, (tuple, list)):
        items = [_plain(each, depth + 1) for each in value[:_MAX_ITEMS]]
        whole = len(value) <= _MAX_ITEMS and _UNKNOWN not in items
        return items if whole else _UNKNOWN
    if type(value) is dict and len(value) <= _MAX_ITEMS:
        pairs = {str(key)[:_MAX_TEXT]: _plain(each, depth + 1) for key, each in value.items()}
        return {key: each for key, each in pairs.items() if each is not _UNKNOWN}
    return _UNKNOWN


def _function_name(function: Any) -> str:
    """Its name; that of its class for a method made of what has no name, as torchao makes them."""
    while isinstance(function, (functools.partial, types.MethodType)):
        is_partial = isinstance(function, functools.partial)
        function = getattr(function, "func" if is_partial else "__func__")
    return str(getattr(function, "__name__", type(function).__name__))[:_MAX_TEXT]
