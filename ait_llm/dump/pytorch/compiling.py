"""Whether a compiler runs the code that asks, in all versions of PyTorch from 2.1."""

from __future__ import annotations

import torch

__all__ = ["is_compiling", "is_dynamo_compiling"]

# Before 2.2 the one function of torch that Dynamo replaces is this one, and before 2.3 it is silent
# about what compiles. Dynamo takes functions of torch for constants, so they are used as they are.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
is_dynamo_compiling = getattr(torch.compiler, "is_dynamo_compiling", None) or is_compiling
