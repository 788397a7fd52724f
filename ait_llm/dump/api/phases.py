"""Calls made by optimizers and by gradient clipping belong to these, not to a module."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ait_llm.dump.api.capture import local
from ait_llm.dump.api.replacing import BodySwap

OPTIMIZER = "optimizer"
CLIP_GRAD = "clip_grad"
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


class PhaseWatch:
    """Notes while an optimizer's step or gradient clipping runs."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._swaps: list[BodySwap] = []
        for name in _CLIPPING:
            function = getattr(torch.nn.utils.clip_grad, name, None)
            if isinstance(function, FunctionType):
                self._swaps.append(BodySwap(function, _clip))

    def install(self) -> None:
        """Begin to look."""
        local.phase = ""
        self._handles = [
            register_optimizer_step_pre_hook(_begin),
            register_optimizer_step_post_hook(_end),
        ]
        for swap in self._swaps:
            swap.install()

    def remove(self) -> None:
        """End it."""
        local.phase = ""
        for handle in self._handles:
            handle.remove()
        for swap in self._swaps:
            swap.remove()


def _begin(*_: Any) -> None:
    local.phase = OPTIMIZER


def _end(*_: Any) -> None:
    local.phase = ""


def _clip(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    frame: FrameType | None,
) -> Any:
    before, local.phase = local.phase, CLIP_GRAD
    try:
        return function(*args, **kwargs)
    finally:
        local.phase = before
