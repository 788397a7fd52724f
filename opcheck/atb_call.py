"""Calling one operator through the Python API of the acceleration library, ``torch_atb``.

Also copied into capsules, so it needs Python and torch only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_STRIDED = "RmsNormWithStride"  # reports the class name of RmsNorm


def class_stem(type_name: str, inputs: Sequence[Tensor | None]) -> str:
    """``Linear`` of ``LinearOperation``: the start of the names of its classes."""
    stem = type_name.removesuffix("Operation")
    if stem == "RmsNorm" and len(inputs) == 4:
        strides = [tensor is not None and tensor.dtype == torch.int64 for tensor in inputs[2:]]
        return _STRIDED if all(strides) else stem
    return stem


def fill(param: Any, values: Mapping[str, Any]) -> None:
    """Set the fields of a parameter object from printed JSON; keys that it lacks are no fields."""
    for key, value in values.items():
        name = key if hasattr(param, key) else _snake(key)
        if not hasattr(param, name):
            continue
        current = getattr(param, name)
        if isinstance(value, Mapping):
            fill(current, value)
        elif hasattr(type(current), "__members__"):  # an enumeration, of Python or pybind11
            setattr(param, name, type(current)(value))
        else:
            setattr(param, name, value)


def _snake(key: str) -> str:
    """``transposeA`` as ``transpose_a``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


def forward(
    module: ModuleType,
    stem: str,
    params: Mapping[str, Any],
    inputs: Sequence[Tensor | None],
    on_host: Collection[int],
    to_device: Callable[[Tensor], Tensor],
) -> tuple[list[Tensor], list[Tensor]]:
    """Run an operator on copies of its inputs.

    Args:
        module: ``torch_atb``, or one with its interface.
        stem: see :func:`class_stem`; the module has ``{stem}Param``.
        params: as the library prints them.
        inputs: CPU tensors, None for an absent one.
        on_host: indices of the inputs that the library reads from host memory.
        to_device: moves a tensor to where the library computes.

    Returns:
        The outputs and the inputs as they are afterwards, both on the CPU.
    """
    param = getattr(module, f"{stem}Param")()
    fill(param, params)
    operation = module.Operation(param)
    given = []
    for index in range(max(operation.input_num, len(inputs))):
        tensor = inputs[index] if index < len(inputs) else None
        placed = (torch.empty(0) if tensor is None else tensor).clone()
        given.append(placed if index in on_host else to_device(placed))
    outputs = operation.forward(given)
    return [tensor.cpu() for tensor in outputs], [tensor.cpu() for tensor in given]
