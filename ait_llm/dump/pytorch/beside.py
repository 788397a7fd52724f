"""Tensors that a quantised weight consists of and that are no parameters of the module.

bitsandbytes keeps scales and codes in objects of the weight or the module, ``torch.ao`` weights as
a kernel has packed them, and transformers the experts of GPT-OSS as the kernel of MXFP4 wants them.
They are saved under the names, and in the layout, that they have in a checkpoint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

_AO = "torch.ao.nn."
_STATE = "MatmulLtState"
_EXPERTS = "Mxfp4GptOssExperts"
_BLOCK = 16  # bytes of 32 floats of four bits
# Types of eight bits, and what they are above int8; by name, as torch is about to drop them.
_WHOLE = {"torch.qint8": 0, "torch.quint8": 128}


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
        for name, tensor in _unpacked(module):
            yield f"{at}weight", at + name, tensor
        for name, tensor in _of_experts(module):
            yield f"{at}{name.rpartition('_')[0]}_bias", at + name, tensor


def has_experts_of_four_bits(module: nn.Module) -> bool:
    """True for experts that only the kernel of MXFP4 holds."""
    return type(module).__name__ == _EXPERTS


def packed_weight(module: nn.Module) -> torch.Tensor | None:
    """The weight of a module of ``torch.ao``, quantised or float16; None of any other module."""
    unpack = _method(module, "weight")
    found = unpack() if unpack else None
    if not isinstance(found, torch.Tensor):
        return None
    packed: Any = getattr(module, "_packed_params", None)
    if getattr(packed, "dtype", None) is torch.float16:  # which it gives out as float32
        return found.half()
    return found if found.is_quantized else None


def _method(module: nn.Module, name: str) -> Callable[[], Any] | None:
    found = getattr(type(module), name, None)
    if not type(module).__module__.startswith(_AO) or not callable(found):
        return None
    return functools.partial(found, module)


def _unpacked(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """``weight``, ``[out, in]``, or what it is stored as, and ``bias``.

    Quantised it is ``(weight_qdata - weight_zero_point) * weight_scale``, of int8, with one scale
    and zero point of all or of each row. Tables of four bits are in no form that is known.
    """
    weight = packed_weight(module)
    if weight is None:
        return
    yield from _stored(weight) if weight.is_quantized else [("weight", weight)]
    add = _method(module, "bias")
    bias = add() if add else None
    if isinstance(bias, torch.Tensor):
        yield "bias", bias


def _stored(weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    above = _WHOLE.get(str(weight.dtype))
    if above is None:
        return
    if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale, zero = torch.tensor([weight.q_scale()]), torch.tensor([weight.q_zero_point()])
    elif weight.q_per_channel_axis() == 0:
        scale, zero = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    else:
        return
    yield "weight_qdata", (weight.int_repr().short() - above).to(torch.int8)
    yield "weight_scale", scale.float()
    zero = zero - above  # floats in tables of embeddings
    yield "weight_zero_point", zero if zero.is_floating_point() else zero.int()


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
    if not has_experts_of_four_bits(module):
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
