"""Digests of what a model returns, to prove that a capture does not change it."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake

from ait_llm.dump.inject.channel import report
from ait_llm.dump.pytorch.hooks import Hook
from ait_llm.dump.pytorch.values import leaves
from ait_llm.formats.torch_bridge import bytes_in_order


def observe_outputs(model: nn.Module, root: str) -> None:
    """Report the digest of everything that each call of ``model`` returns.

    Args:
        model: an outermost model.
        root: its name in the reports.
    """

    model.register_forward_hook(Hook(lambda module, args, output: report_output(root, output)))


def report_output(root: str, output: Any) -> None:
    """Report the digest of one output of the model of that name."""
    report("output", root=root, sha256=digest(output))


def digest(value: Any) -> str:
    """SHA-256 over the names, types, shapes and bytes of all tensors in ``value``, and all numbers.

    Opaque objects count by their type.
    """
    sha = hashlib.sha256()
    for leaf in leaves(value, "output"):
        if leaf.tensor is None:
            sha.update(f"{leaf.name}={leaf.value!r}{leaf.reason}\n".encode())
            continue
        tensor = leaf.tensor
        sha.update(f"{leaf.name}:{tensor.dtype}{tuple(tensor.shape)}\n".encode())
        for part in _host_parts(tensor.detach()):
            sha.update(bytes_in_order(part).numpy().data)
    return sha.hexdigest()


def _host_parts(tensor: Tensor) -> list[Tensor]:
    """Dense contiguous CPU tensors with the values of ``tensor``; none for one without data."""
    local = getattr(tensor, "to_local", None)
    if callable(local):
        tensor = local()
    if tensor.device.type == "meta" or is_fake(tensor):
        return []
    if tensor.is_nested:
        return [part for item in tensor.unbind() for part in _host_parts(item)]
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    dense = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    return [dense] if dense.numel() else []
