"""What is a model, among the modules that a program calls, and what a module is a part of."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"})


def is_wrapper(module: nn.Module) -> bool:
    """True for modules of torch that stand for the one they wrap."""
    return type(module).__name__ in _WRAPPERS


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside any number of wrappers."""
    while is_wrapper(module):
        members = module._modules
        inner = members.get("_fsdp_wrapped_module") or members.get("module")
        if inner is None:
            break
        module = inner
    return module


def is_model(module: nn.Module) -> bool:
    """True for modules with members and weights that are no loss, no metric and no replica."""
    if getattr(module, "_is_replica", False) or isinstance(module, _Loss):
        return False
    if any(base.__module__.partition(".")[0] == "torchmetrics" for base in type(module).__mro__):
        return False
    has_tensors = any(True for _ in module.parameters()) or any(True for _ in module.buffers())
    return has_tensors and any(True for _ in module.children())


def outermost_owner(module: nn.Module) -> nn.Module:
    """The outermost model that ``module`` is a part of, or itself.

    A program may call a part first, such as the vision tower of a model. Modules do not know what
    they are part of, so all modules of the process are looked at.
    """
    owners: dict[int, nn.Module] = {}
    for candidate in gc.get_objects():
        # Not isinstance: it would ask proxies for their class and wake them up.
        if issubclass(type(candidate), nn.Module) and _is_owner(candidate):
            for child in (candidate.__dict__.get("_modules") or {}).values():
                owners.setdefault(id(child), candidate)
    owner, above = module, owners.get(id(module))
    seen = {id(module)}
    while above is not None and id(above) not in seen:
        seen.add(id(above))
        if type(above).forward is not nn.Module.forward:
            owner = above
        above = owners.get(id(above))
    return owner


def _is_owner(module: nn.Module) -> bool:
    """False for modules that stand for the one they hold, and for losses around a model."""
    return not (
        is_wrapper(module)
        or "_orig_mod" in (module.__dict__.get("_modules") or {})
        or isinstance(module, _Loss)
    )


def generating_models(frame: FrameType | None) -> list[tuple[nn.Module, Mapping[str, Any]]]:
    """Models whose ``generate`` is running, outermost first, with its variables.

    Adapters around a model, whose ``generate`` only passes on, are left out; a model that asks an
    assistant model for candidates comes before it.
    """
    found: list[tuple[nn.Module, Mapping[str, Any]]] = []
    while frame is not None:
        if frame.f_code.co_name == "generate":
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                members = set(owner.modules())
                if not any(inner in members for inner, _ in found):
                    found.append((owner, dict(frame.f_locals)))
        frame = frame.f_back
    return found[::-1]


def prompt_length(model: nn.Module, arguments: Mapping[str, Any]) -> int | None:
    """Tokens of the prompt among the variables of ``generate``; None if they do not show it."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    named = {**arguments, **(arguments.get("kwargs") or {})}
    for name, dimensions in (("inputs", 2), ("input_ids", 2), ("inputs_embeds", 3)):
        value = named.get(name)
        if isinstance(value, Tensor) and value.dim() == dimensions:
            return int(value.shape[1])
    return None
