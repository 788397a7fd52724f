"""How much of a bug a capture shows, beside the rounding of its type."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch

from ait_llm import open_dump

_Key = tuple[object, ...]
_MASKED = 1e4  # masks hide with the lowest numbers


def visible(mine: Path, healthy: Path, exact: Path) -> float:
    """The error that a bug leaves in what was captured, over that which the type itself leaves.

    The bug's error is the distance of a capture with it from one of the same program without it,
    that of the type the distance of the latter from the same program in a wider type; both relative
    and Euclidean, tensor by tensor. Where the ratio is below one, the capture with the bug is as
    near to the truth as its type lets it be.

    Args:
        mine: capture of the program with the bug.
        healthy: of the program without it.
        exact: of that in a wider type, float64 where it is in float32.

    Returns:
        The largest ratio of all tensors; infinite where one is not finite, has another shape than
        without the bug, or where the type leaves no error. Tensors that the program in the wider
        type has none of, such as what is cast to 16 bits, are those of other operators, and do not
        count.
    """
    right, truth = dict(_tensors(healthy)), dict(_tensors(exact))
    worst = 0.0
    for key, wrong in _tensors(mine):
        without = right.get(key)
        if without is None or without.shape != wrong.shape:
            return math.inf
        made = _distance(without, wrong)
        if made == 0.0:
            continue
        reference = truth.get(key)
        if reference is None or reference.shape != without.shape:
            continue
        rounding = _distance(reference, without)
        worst = max(worst, made / rounding if rounding else math.inf)
    return worst


def _tensors(folder: Path) -> Iterator[tuple[_Key, torch.Tensor]]:
    for operation in open_dump(folder).operations():
        for tensor in operation.tensors:
            if not tensor.has_data:
                continue
            values = torch.as_tensor(tensor.torch())
            if values.is_floating_point() and values.numel():
                place = (operation.name, operation.step, operation.call)
                yield (*place, tensor.role, tensor.index), values.double()


def _distance(golden: torch.Tensor, mine: torch.Tensor) -> float:
    usual = golden.abs() < _MASKED
    golden, mine = golden[usual], mine[usual]
    if torch.equal(golden, mine):
        return 0.0
    size, error = float(golden.norm()), float((mine - golden).norm())
    return error / size if size and math.isfinite(error) else math.inf
