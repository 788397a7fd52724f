"""Tensors that a quantised weight consists of and that are no parameters of the module.

bitsandbytes keeps scales and codes in objects of the weight or the module, and transformers the
experts of GPT-OSS as the kernel of MXFP4 wants them. They are saved under the names, and in the
layout, that they have in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_STATE = "MatmulLtState"
_EXPERTS = "Mxfp4GptOssExperts"
_BLOCK = 16  # bytes of 32 floats of four bits


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
        for name, tensor in _of_experts(module):
            yield f"{at}{name.rpartition('_')[0]}_bias", at + name, tensor


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


def _of_experts(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """``X_blocks``, ``[experts, out, in / 32, 16]``, and ``X_scales``, ``[experts, out, in / 32]``.

    Where a device wants its bytes is the affair of the kernel's library, which takes them back.
    """
    if type(module).__name__ != _EXPERTS:
        return
    for name in ("gate_up_proj", "down_proj"):
        weight: Any = vars(module).get(name)
        scale: Any = getattr(vars(module).get(f"{name}_precision_config"), "weight_scale", None)
        if hasattr(weight, "storage") and hasattr(scale, "storage"):
            data = _rows(weight)
            yield f"{name}_blocks", data.reshape(*data.shape[:-1], -1, _BLOCK)
            yield f"{name}_scales", _rows(scale)


def _rows(tensor: Any) -> torch.Tensor:
    """``[experts, out, in]`` of what a kernel is given as ``[experts, in, out]``."""
    storage = tensor.storage
    found: torch.Tensor = storage.layout.unswizzle_data(storage.data)
    return found.transpose(-1, -2).contiguous()
