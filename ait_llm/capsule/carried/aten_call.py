"""One recorded operator of torch, computed in more bits than it was recorded in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.aten.calls import build_call, find_operator, is_of_device
from ait_llm.opcheck.golden.aten.operators import compute_operator, tensors_of
from ait_llm.opcheck.golden.base import UnverifiableError

if TYPE_CHECKING:
    from ait_llm.opcheck.golden.base import Arithmetic, Params, Result

OPERATOR = "operator"
"""Parameter that names the operator: ``aten.mm.default``."""


def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Run the operator on widened inputs, and round what it returns.

    Args:
        inputs: the tensors among the arguments.
        params: ``operator``; ``tensors``, the places of ``inputs`` among the arguments, such as
            ``input_1``; plain arguments by their places.
        arithmetic: in which it is computed.
    """
    name = str(params[OPERATOR])
    return compute_operator(name, _operator(name), inputs, params, arithmetic)


def rerun(inputs: Sequence[Tensor | None], params: Params, device: str) -> list[Tensor]:
    """What the operator itself makes of the inputs on a device, in their own types."""
    operator = _operator(str(params[OPERATOR]))
    there = [None if each is None else each.to(device, copy=True) for each in inputs]
    call = build_call(operator, there, params)
    kwargs = {
        name: torch.device(device) if is_of_device(name) else value
        for name, value in call.kwargs.items()
    }
    return tensors_of(operator(*call.args, **kwargs))


def _operator(name: str) -> Any:
    found = find_operator(name)
    if found is None:
        raise UnverifiableError(f"this torch has no operator {name} that only computes")
    return found
