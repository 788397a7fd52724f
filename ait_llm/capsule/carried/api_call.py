"""One recorded call of a PyTorch function, computed in more bits than it was recorded in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import Result

if TYPE_CHECKING:
    from ait_llm.opcheck.golden.base import Arithmetic, Params


def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Call the function with floating tensors widened, and round what it returns.

    Args:
        inputs: the tensors among the arguments.
        params: ``function``, a name within torch; ``args`` and ``kwargs`` with ``{"tensor": 2}``
            for ``inputs[2]``, ``{"dtype": "float16"}`` for a type, ``{"tuple": [...]}``;
            ``outputs``, the types of the recorded results.
        arithmetic: in which it is computed.
    """
    tensors = _called(
        params, [None if each is None else arithmetic.widen(each).clone() for each in inputs]
    )
    return Result(
        tuple(
            _rounded(tensor, getattr(torch, name), arithmetic)
            for tensor, name in zip(tensors, params["outputs"], strict=True)
        )
    )


def rerun(inputs: Sequence[Tensor | None], params: Params, device: str) -> list[Tensor]:
    """What the function itself makes of the arguments on a device, in their own types."""
    there = [None if each is None else each.to(device, copy=True) for each in inputs]
    return _called(params, there)


def _called(params: Params, tensors: Sequence[Tensor | None]) -> list[Tensor]:
    function: Any = torch
    for part in str(params["function"]).removeprefix("torch.").split("."):
        function = getattr(function, part)
    args = [_argument(each, tensors) for each in params["args"]]
    kwargs = {name: _argument(each, tensors) for name, each in params["kwargs"].items()}
    returned = function(*args, **kwargs)
    if returned is None:  # it writes to its first argument
        returned = args[0]
    found = returned if isinstance(returned, (tuple, list)) else [returned]
    return [each for each in found if isinstance(each, Tensor)]


def _rounded(tensor: Tensor, dtype: torch.dtype, arithmetic: Arithmetic) -> Tensor:
    if tensor.is_floating_point() and dtype.is_floating_point:
        return arithmetic.round(tensor, dtype)
    return tensor.to(dtype)


def _argument(value: Any, tensors: Sequence[Tensor | None]) -> Any:
    if isinstance(value, list):
        return [_argument(each, tensors) for each in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        if "dtype" in value:
            return getattr(torch, value["dtype"])
        return tuple(_argument(each, tensors) for each in value["tuple"])
    return value
