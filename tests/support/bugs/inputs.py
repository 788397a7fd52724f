"""Programs that are called with other tokens, positions or masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from bugs.model import Injected, Nature, Surgery, kind


def _passed(at: Surgery, name: str, change: Any) -> None:
    def call(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        if isinstance(kwargs.get(name), torch.Tensor):
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                return args, kwargs | {name: change(kwargs[name].clone())}
        return None

    at.stack.callback(at.model.register_forward_pre_hook(call, with_kwargs=True).remove)


def _readers(model: nn.Module, *ends: str) -> tuple[str, ...]:
    found = [path for path, _ in model.named_modules() if path.endswith(ends)]
    bases = [path for path, module in model.named_modules() if hasattr(module, "layers")]
    return ("", *bases, *found)


@kind("wrong token", Nature.INPUT)
def _token(at: Surgery) -> Injected | None:
    def change(ids: torch.Tensor) -> torch.Tensor:
        ids[0, -1] = (ids[0, -1] + 7) % 90 + 1
        return ids

    _passed(at, "input_ids", change)
    owners = _readers(at.model, "embed_tokens", "wte", "embed_in", "embeddings", "shared")
    return Injected(owners, attribute="input_ids", words=("token", "ids"))


@kind("wrong positions", Nature.INPUT)
def _positions(at: Surgery) -> Injected | None:
    _passed(at, "position_ids", lambda ids: ids + 1)
    owners = _readers(at.model, "rotary_emb", "wpe")
    return Injected(owners, attribute="position_ids", words=("position",))


@kind("wrong padding mask", Nature.INPUT)
def _padding(at: Surgery) -> Injected | None:
    def change(mask: torch.Tensor) -> torch.Tensor:
        mask[:, 0] = 0
        return mask

    _passed(at, "attention_mask", change)
    return Injected(_readers(at.model, "\0"), attribute="attention_mask", words=("mask",))


@kind("prompt without its first token", Nature.INPUT)
def _prompt(at: Surgery) -> Injected | None:
    def shorter(ids: torch.Tensor) -> torch.Tensor:
        return ids[:, 1:] if ids.shape[1] > 2 else ids  # later steps read one token

    _passed(at, "input_ids", shorter)
    _passed(at, "position_ids", lambda ids: ids[:, :-1] if ids.shape[1] > 2 else ids - 1)
    _passed(at, "attention_mask", lambda mask: mask[:, 1:])
    owners = _readers(at.model, "embed_tokens", "wte", "embed_in", "embeddings", "shared")
    return Injected(owners, attribute="input_ids", words=("prompt",))
