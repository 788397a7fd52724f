"""Tensors that a quantised weight consists of and that are no parameters of the module.

bitsandbytes keeps scales and codes in objects of the weight or the module. They are saved under the
names that they have in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_STATE = "MatmulLtState"


def beside(model: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Each such tensor of a model: the weight that it belongs to, its own name, itself."""
    for path, module in model.named_modules():
        at = f"{path}." if path else ""
        for name, parameter in module.named_parameters(recurse=False):
            for key, tensor in _of_four_bits(parameter):
                yield at + name, f"{at}{name}.{key}", tensor
        scale = _of_eight_bits(module)
        if scale is not None:
            yield f"{at}weight", f"{at}SCB", scale


def _of_four_bits(weight: nn.Parameter) -> Iterator[tuple[str, torch.Tensor]]:
    """``absmax``, ``quant_map``, of nested ones theirs, and the rest as JSON in bytes.

    What a kernel for CPUs has packed is in no form that is known.
    """
    state: Any = getattr(weight, "quant_state", None)
    if hasattr(state, "as_dict") and not getattr(state, "packing_format_for_cpu", False):
        for key, tensor in state.as_dict(packed=True).items():
            if isinstance(tensor, torch.Tensor):
                yield str(key), tensor


def _of_eight_bits(module: nn.Module) -> torch.Tensor | None:
    state: Any = vars(module).get("state")
    if type(state).__name__ != _STATE or getattr(state, "has_fp16_weights", True):
        return None
    found = getattr(getattr(module, "weight", None), "SCB", None)
    found = getattr(state, "SCB", None) if found is None else found
    return found if isinstance(found, torch.Tensor) else None
