"""Matrix products with large weights, in a wider type than the weight is stored in.

A weight is widened in blocks that stay in the processor's cache. The whole of it in float64 would
be four times the size of what was dumped, and writing and reading it takes longer than the product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import Arithmetic

# Elements of a widened block. Of 2**18 to 2**22 this was the fastest, in float32 and float64, on a
# core with 1 MiB of second-level cache.
_BLOCK = 1 << 20
# Sums of int8 products of this many terms are whole float32 numbers.
_EXACT_FLOAT32_TERMS = 2**24 // 128**2


def wide_matmul(x: Tensor, weight: Tensor, arithmetic: Arithmetic) -> Tensor:
    """``x [..., M, K] . weight [..., K, N]``, both widened; not rounded."""
    return _product(arithmetic.widen(x), weight, arithmetic.widen(weight[:0]).dtype)


def integer_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """The exact product of int8 matrices, as float64 whole numbers."""
    exact = torch.float32 if x.shape[-1] <= _EXACT_FLOAT32_TERMS else torch.float64
    return _product(x.to(exact), weight, exact).to(torch.float64)


def _product(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` is of ``dtype``, and the product will be; ``weight`` is widened to it."""
    if weight.dtype == dtype or weight.dim() != 2 or weight.numel() <= 2 * _BLOCK:
        return torch.matmul(x, weight.to(dtype))
    inner, columns = weight.shape
    rows = x.reshape(-1, inner)
    product = rows.new_empty(len(rows), columns)
    width = max(1, _BLOCK // inner)
    for first in range(0, columns, width):
        block = slice(first, first + width)
        product[:, block] = rows @ weight[:, block].to(dtype)
    return product.reshape(*x.shape[:-1], columns)
