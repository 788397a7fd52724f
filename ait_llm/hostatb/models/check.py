"""How far the two sides of a demo may be apart, and how far they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Largest relative error of one rounding: half the spacing of the type's significand.
_ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
# Root mean square of that error over its largest value, for values spread evenly over binades.
_TYPICAL = 0.42
_ROUNDINGS_PER_LAYER = 11  # tensors that a decoder layer rounds between its input and its output
_SAFETY = 4.0


def tolerance(dtype: torch.dtype, layers: int, hidden_size: int) -> float:
    """Limit of the relative error of a model's output.

    Both sides round the same tensors independently and sum in float32 in their own order. Errors
    of independent roundings add like a random walk, over ``11 * layers`` tensors on each side; a
    sum of n float32 terms adds about ``sqrt(n)`` roundings of its own. The result carries a factor
    of four for what the walk leaves out.
    """
    one = _TYPICAL * _ROUNDING[dtype] + math.sqrt(hidden_size) * _ROUNDING[torch.float32]
    return _SAFETY * math.sqrt(2 * _ROUNDINGS_PER_LAYER * layers) * one


@dataclass(frozen=True, slots=True)
class Agreement:
    """Comparison of one output.

    Attributes:
        max_error: largest absolute difference.
        relative_error: Euclidean norm of the difference over that of the golden output.
        limit: what the relative error may be.
    """

    max_error: float
    relative_error: float
    limit: float

    @property
    def passed(self) -> bool:
        """True within the limit; NaN never passes."""
        return self.relative_error <= self.limit

    def __str__(self) -> str:
        return (
            f"{'PASS' if self.passed else 'FAIL'}  max error {self.max_error:.3g}, "
            f"relative error {self.relative_error:.3g}, limit {self.limit:.3g}"
        )


def agree(golden: Tensor, mine: Tensor, limit: float) -> Agreement:
    """Compare two outputs of the same shape; the worst row along the first dimension counts."""
    reference = golden.double()
    difference = mine.double() - reference
    relative = difference.norm(dim=-1) / reference.norm(dim=-1)
    return Agreement(float(difference.abs().max()), float(relative.max()), limit)
