"""GELU as ggml's CPU backend computes it: a number that was stored for each float16.

``ggml_vec_gelu_f32`` and ``ggml_vec_geglu_f32`` of ``ggml/src/ggml-cpu/vec.h``: between -10 and 10
the argument is rounded to float16 and its result, itself a float16, is looked up; below it is zero,
above it is the argument. Other backends may compute it in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_EDGE = 10.0
_SCALE, _CUBIC = 0.79788456080286535588, 0.044715
# The table is filled in float32: what tanhf and the steps after it may lose, relative to the
# argument. One plus tanh cancels in the lower tail, so that it is not relative to the result.
_LOST = 4 * 2.0**-24


def is_from_table(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Mapping[str, Any]
) -> bool:
    """True if each result is one that such a table gives, times the second input if there is one.

    An entry that lies next to the middle between two float16 may be either of them.

    Args:
        inputs: the argument, and what it gates; float32 or float16, of one shape.
        outputs: what was returned.
        params: not looked at.
    """
    x = inputs[0] if inputs else None
    if x is None or len(outputs) != 1 or outputs[0].shape != x.shape or len(inputs) > 2:
        return False
    factor = inputs[1] if len(inputs) > 1 else None
    if factor is not None and factor.shape != x.shape:
        return False
    found = outputs[0]
    if found.dtype not in (torch.float32, torch.float16):
        return False
    with _disable_current_modes():
        low, high = _entries(x.double())
        if factor is not None:
            ends = torch.stack((low * factor.double(), high * factor.double()))
            low, high = ends.amin(0), ends.amax(0)
        step = torch.finfo(found.dtype).eps / 2
        least = low - low.abs() * step
        most = high + high.abs() * step
        tiny = torch.finfo(found.dtype).smallest_normal * step  # half of the smallest number
        inside = (found.double() >= least - tiny) & (found.double() <= most + tiny)
        return bool((inside | (found.isnan() & x.isnan())).all())


def _entries(x: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest that the table may hold for each argument."""
    at = x.to(torch.float16).double()
    exact = 0.5 * at * (1.0 + torch.tanh(_SCALE * at * (1.0 + _CUBIC * at * at)))
    lost = 0.5 * at.abs() * _LOST + exact.abs() * _LOST
    inside = (x > -_EDGE) & (x < _EDGE)
    outside = torch.where(x <= -_EDGE, torch.zeros_like(x), x)
    low, high = ((exact + side).to(torch.float16).double() for side in (-lost, lost))
    return torch.where(inside, low, outside), torch.where(inside, high, outside)
