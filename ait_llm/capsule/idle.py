"""Input values that an output does not depend on: they become zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ait_llm.capsule.case import Call, Case

if TYPE_CHECKING:
    from torch import Tensor

# Pieces of one input that are tried. Zeros matter for reading and for the size of the zip only.
_TRIES = 48


def without_idle_values(case: Case, accepts: Callable[[Case], object | None]) -> tuple[Case, int]:
    """Set parts of floating inputs to zero as long as ``accepts`` says something other than None.

    Returns:
        The case, and how many elements that were not zero became zero.
    """
    zeroed = 0
    for index, tensor in enumerate(case.call.inputs):
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            continue
        pieces, tries = [(0, tensor.numel())], 0
        while pieces and tries < _TRIES:
            start, end = pieces.pop(0)
            smaller, count = _with_zeros(case, index, start, end)
            if not count:
                continue
            tries += 1
            if accepts(smaller) is not None:
                case, zeroed = smaller, zeroed + count
            elif end - start > 1:
                middle = (start + end) // 2
                pieces += [(start, middle), (middle, end)]
    return case, zeroed


def _with_zeros(case: Case, index: int, start: int, end: int) -> tuple[Case, int]:
    tensor = case.call.inputs[index]
    assert tensor is not None
    changed: Tensor = tensor.contiguous().clone()
    piece = changed.view(-1)[start:end]
    count = int((piece != 0).sum())
    piece.zero_()
    inputs = list(case.call.inputs)
    inputs[index] = changed
    return case.with_call(Call(inputs, case.call.params), case.dumped), count
