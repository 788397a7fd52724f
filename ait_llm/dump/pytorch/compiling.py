"""Whether a compiler runs the code that asks, in all versions of PyTorch from 2.1."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["is_compiling", "is_dynamo_compiling"]


def _never() -> bool:
    """Graphs can have no operators of ours."""
    return False


# Dynamo takes functions of torch for constants, so they are used as they are. Before PyTorch 2.2
# the only one is in torch._utils.
is_compiling: Callable[[], bool] = (
    getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
)
"""True while a compiler or tracer runs the code."""

is_dynamo_compiling: Callable[[], bool] = (
    torch.compiler.is_dynamo_compiling if hasattr(torch.library, "custom_op") else _never
)
"""True while Dynamo does, in versions (since 2.4) in which its graphs can have our operators."""
