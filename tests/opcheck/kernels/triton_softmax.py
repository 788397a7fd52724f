"""A softmax of rows as a Triton kernel; the constant ``FAULT`` plants one bug.

0 none, 1 lanes behind the row are not masked, 2 the largest score is not subtracted, 3 sums are
kept in float16, 4 the last element of a row is not written.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _softmax(x: Any, y: Any, width: Any, stride: Any, LANES: tl.constexpr, FAULT: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, LANES)
    inside = lanes < width
    hidden = 0.0 if FAULT == 1 else float("-inf")
    scores = tl.load(x + row * stride + lanes, mask=inside, other=hidden).to(tl.float32)
    if FAULT != 2:
        scores -= tl.max(scores, axis=0)
    powers = tl.exp(scores)
    total = tl.sum(powers.to(tl.float16), axis=0) if FAULT == 3 else tl.sum(powers, axis=0)
    written = lanes < width - 1 if FAULT == 4 else inside
    tl.store(y + row * width + lanes, powers / total, mask=written)


def softmax(x: Tensor, fault: int = 0) -> Tensor:
    """Softmax of the last dim of a matrix."""
    if x.stride(-1) != 1:
        raise ValueError("rows must be contiguous")
    rows, width = x.shape
    result = torch.zeros(rows, width, dtype=x.dtype)
    if rows:
        lanes = triton.next_power_of_2(width)
        _softmax[(rows,)](x, result, width, x.stride(0), LANES=lanes, FAULT=fault)
    return result
