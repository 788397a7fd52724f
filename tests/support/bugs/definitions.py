"""Programs with another number: epsilon, base, scale, cap, activation, top-k."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers.activations import ACT2FN

from bugs.model import Injected, Nature, Surgery, kind

_EPSILONS = ("eps", "variance_epsilon")
_CAPS = ("attn_logit_softcapping",)


@dataclass(frozen=True)
class _Attribute:
    path: str
    module: nn.Module
    name: str

    @property
    def value(self) -> Any:
        """As it is now."""
        return vars(self.module)[self.name]


def _attributes(model: nn.Module, *names: str) -> Iterator[_Attribute]:
    for path, module in model.named_modules():
        for name in names:
            if isinstance(vars(module).get(name), (int, float)):
                yield _Attribute(path, module, name)


def _changed(at: Surgery, names: tuple[str, ...], new: Any) -> Injected | None:
    found = list(_attributes(at.model, *names))
    if not found:
        return None
    chosen = at.rng.choice(found)
    old, wrong = chosen.value, new(chosen.value)
    setattr(chosen.module, chosen.name, wrong)
    return Injected((chosen.path,), attribute=chosen.name, numbers=(float(old), float(wrong)))


@kind("wrong eps", Nature.DEFINITION, graded=True, large=0.05)
def _epsilon(at: Surgery) -> Injected | None:
    # inputs of norms are of the size of one here
    return _changed(at, _EPSILONS, lambda old: old + 2 * at.strength)


@kind("wrong attention scale", Nature.DEFINITION, graded=True, large=1.0)
def _scale(at: Surgery) -> Injected | None:
    return _changed(at, ("scaling", "scale"), lambda old: old * (1 + at.strength))


@kind("wrong cap of attention logits", Nature.DEFINITION, graded=True, large=1.0)
def _cap(at: Surgery) -> Injected | None:
    return _changed(at, _CAPS, lambda old: old / (1 + at.strength))


@kind("wrong top-k", Nature.DEFINITION)
def _top_k(at: Surgery) -> Injected | None:
    routers = [each for each in _attributes(at.model, "top_k") if "Router" in _type(each.module)]
    if not routers:
        return None
    chosen = at.rng.choice(routers)
    old, new = chosen.value, chosen.value + at.rng.choice((-1, 1))
    chosen.module.top_k = new
    return Injected((chosen.path,), attribute="top_k", numbers=(float(old), float(new)))


@kind("wrong factor of routed experts", Nature.DEFINITION, graded=True, large=0.2)
def _routed(at: Surgery) -> Injected | None:
    return _changed(at, ("routed_scaling_factor",), lambda old: old * (1 + at.strength))


@kind("wrong attention factor of rotary tables", Nature.DEFINITION, graded=True, large=0.1)
def _rotary_factor(at: Surgery) -> Injected | None:
    names = ("attention_scaling", "sliding_attention_attention_scaling")
    return _changed(at, names, lambda old: old * (1 + at.strength))


@kind("wrong limit of gated experts", Nature.DEFINITION, graded=True, large=0.3)
def _alpha(at: Surgery) -> Injected | None:
    return _changed(at, ("alpha",), lambda old: old * (1 + at.strength))


def _type(module: nn.Module) -> str:
    return type(module).__name__


@kind("wrong activation", Nature.DEFINITION)
def _activation(at: Surgery) -> Injected | None:
    names = ("act_fn", "activation_fn", "act", "intermediate_act_fn")
    found = [
        (path, module, name)
        for path, module in at.model.named_modules()
        for name in names
        if isinstance(getattr(module, name, None), nn.Module)
    ]
    if not found:
        return None
    path, module, name = at.rng.choice(found)
    old = _type(getattr(module, name))
    new = "gelu" if "SiLU" in old else "silu" if at.rng.random() < 0.5 else "quick_gelu"
    setattr(module, name, ACT2FN[new])
    owner = f"{path}.{name}" if path else name
    return Injected((owner, path), attribute=name)


@kind("wrong rotary base", Nature.DEFINITION, graded=True, large=1.0)
def _theta(at: Surgery) -> Injected | None:
    found = [
        (path, module, name)
        for path, module in at.model.named_modules()
        for name, _ in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    ]
    if not found:
        return None
    path, module, name = at.rng.choice(found)
    old = getattr(module, name)
    width = len(old)
    powers = torch.arange(width, dtype=torch.float32, device=old.device) / width
    new = (old.float() * (1 + at.strength) ** -powers).to(old.dtype)
    setattr(module, name, nn.Buffer(new, persistent=False))
    return Injected((path,), attribute=name, right=old, wrong=new)


@kind("wrong rotary tables", Nature.DEFINITION, graded=True, large=0.1)
def _tables(at: Surgery) -> Injected | None:
    """litgpt keeps cosine and sine in buffers of the model."""
    buffers = dict(at.model.named_buffers(recurse=False))
    if "cos" not in buffers:
        return None
    name = at.rng.choice(("cos", "sin"))
    old = buffers[name]
    new = (old.float() * (1 + at.strength)).to(old.dtype)
    at.model.register_buffer(name, new, persistent=False)
    return Injected(("",), attribute=name, right=old, wrong=new)


@kind("stale buffer", Nature.DEFINITION, graded=True, large=0.3)
def _buffer(at: Surgery) -> Injected | None:
    names = ("embed_scale", "e_score_correction_bias")
    found = [
        (path, module, name)
        for path, module in at.model.named_modules()
        for name, _ in module.named_buffers(recurse=False)
        if name in names
    ]
    if not found:
        return None
    path, module, name = at.rng.choice(found)
    old = getattr(module, name)
    drift = torch.linspace(0.5, 1.5, old.numel()).reshape(old.shape).to(old)
    new = old * (1 + at.strength) if name == "embed_scale" else old + at.strength * drift
    module.register_buffer(name, new)
    return Injected((path,), attribute=name, right=old, wrong=new)


@kind("mask off by one", Nature.DEFINITION)
def _mask(at: Surgery) -> Injected | None:
    """The function that makes the causal mask also shows the next token."""

    def create(*args: Any, made: Any, **kwargs: Any) -> Any:
        mask = made(*args, **kwargs)
        if not isinstance(mask, torch.Tensor) or mask.shape[-2] < 2:
            return mask
        return torch.cat([mask[..., 1:, :], mask[..., -1:, :]], -2)

    owners = []
    for path, module in at.model.named_modules():
        library = sys.modules[type(module).__module__]
        made = vars(library).get("create_causal_mask")
        if made is None or not hasattr(module, "layers"):
            continue
        if not isinstance(made, partial):  # one library, perhaps of an encoder and a decoder
            wrong = partial(create, made=made)
            at.stack.enter_context(patch.object(library, "create_causal_mask", wrong))
        owners.append(path)
    if not owners:
        return None
    return Injected(tuple(owners), attribute="attention_mask", words=("mask",))


@kind("wrong window", Nature.DEFINITION)
def _window(at: Surgery) -> Injected | None:
    config = getattr(at.model, "config", None)
    old = getattr(config, "sliding_window", None)
    base = next((path for path, each in at.model.named_modules() if hasattr(each, "layers")), None)
    if config is None or not isinstance(old, int) or base is None:
        return None
    config.sliding_window = old - 1
    numbers = (float(old), float(old - 1))
    # the configuration is that of the whole model, and what makes masks is within its first part
    owners = tuple(dict.fromkeys((base, "")))
    return Injected(owners, attribute="sliding_window", numbers=numbers, words=("mask",))


@kind("dropout left on", Nature.DEFINITION)
def _dropout(at: Surgery) -> Injected | None:
    found = [
        (path, module)
        for path, module in at.model.named_modules()
        if isinstance(module, nn.Dropout) and module.p > 0
    ]
    if not found:
        return None
    path, module = at.rng.choice(found)
    module.train()
    return Injected((path,), attribute="training")
