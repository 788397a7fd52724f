"""Matrix products with large weights, in a wider type than the weight is stored in.

A weight is widened in blocks that stay in the processor's cache. The whole of it in float64 would
be four times the size of what was dumped, and writing and reading it takes longer than the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import Arithmetic

# Elements of a widened block. Of 2**18 to 2**22 this was the fastest, in float32 and float64, on a
# core with 1 MiB of second-level cache.
_BLOCK = 1 << 20
# Terms that are added up in float32 before float64 takes over, where both factors have 16 bits.
# Products of those are exact in float32. A correct float32 kernel may be off by 16 sqrt(n) units of
# the last place of sum |a||b|; this is off by 0.1 of them with random signs, and if all terms have
# one sign by sqrt(512 / 3) * sqrt(512 / n), less than a tenth of that kernel's own deviation.
_TERMS = 512
# Sums of int8 products of this many terms are whole float32 numbers.
_EXACT_FLOAT32_TERMS = 2**24 // 128**2
_HALVES = (torch.float16, torch.bfloat16)


@dataclass(slots=True)
class _Shared:
    """Products of some tensors; their memory cannot be reused while this holds them."""

    tensors: Sequence[Tensor | None]
    products: dict[object, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class Magnitudes:
    """How products are computed meanwhile: of absolute values.

    Attributes:
        part: largest share of the terms to add up, those of the largest ``x``. The result then is a
            lower bound.
        used: memory of the large weights that were.
        is_part: terms were left out.
    """

    part: float = 1.0
    used: set[int] = field(default_factory=set)
    is_part: bool = False


_shared: ContextVar[_Shared | None] = ContextVar("shared products", default=None)
_magnitudes: ContextVar[Magnitudes | None] = ContextVar("magnitudes", default=None)


@contextmanager
def shared_products(inputs: Sequence[Tensor | None]) -> Iterator[None]:
    """Compute products of these tensors, with large weights among them, only once meanwhile.

    An operator is evaluated in several arithmetics, and the sum before it is rounded is the same
    in all of them. The tensors must not change.
    """
    token = _shared.set(_Shared(inputs))
    try:
        yield
    finally:
        _shared.reset(token)


@contextmanager
def magnitudes(part: float = 1.0) -> Iterator[Magnitudes]:
    """Compute products with large 16-bit weights of absolute values, or a part of each, meanwhile.

    Nothing then has to hold the absolute values of a large weight.
    """
    token = _magnitudes.set(Magnitudes(part))
    try:
        found = _magnitudes.get()
        assert found is not None
        yield found
    finally:
        _magnitudes.reset(token)


def wide_matmul(x: Tensor, weight: Tensor, arithmetic: Arithmetic) -> Tensor:
    """``x [..., M, K] . weight [..., K, N]``, both widened; not rounded, and not to be changed."""
    dtype = arithmetic.widen(weight[:0]).dtype
    if not is_large(weight) or x.dtype not in _HALVES or weight.dtype not in _HALVES:
        return _product(arithmetic.widen(x), weight, dtype)
    sizes = _magnitudes.get()
    if sizes is not None:
        return _magnitudes_product(x, weight, sizes).to(dtype)
    return _remembered(x, weight).to(dtype)


def integer_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """The exact product of int8 matrices, as float64 whole numbers."""
    exact = torch.float32 if x.shape[-1] <= _EXACT_FLOAT32_TERMS else torch.float64
    return _product(x.to(exact), weight, exact).to(torch.float64)


def is_large(weight: Tensor) -> bool:
    """True for a weight that is worth being widened in blocks."""
    return weight.dim() == 2 and weight.numel() > 2 * _BLOCK


def _blocks(weight: Tensor) -> Iterator[slice]:
    """The columns of a large weight, some at a time."""
    inner, columns = weight.shape
    width = max(1, _BLOCK // inner)
    return (slice(first, first + width) for first in range(0, columns, width))


def _product(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` is of ``dtype``, and the product will be; ``weight`` is widened to it."""
    if weight.dtype == dtype or not is_large(weight):
        return torch.matmul(x, weight.to(dtype))
    rows = x.reshape(-1, x.shape[-1])
    product = rows.new_empty(len(rows), weight.shape[1])
    for block in _blocks(weight):
        product[:, block] = rows @ weight[:, block].to(dtype)
    return product.reshape(*x.shape[:-1], -1)


def _remembered(x: Tensor, weight: Tensor) -> Tensor:
    shared = _shared.get()
    if shared is None or not all(_is_among(tensor, shared.tensors) for tensor in (x, weight)):
        return _halves_product(x, weight)
    key = tuple(
        (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) for tensor in (x, weight)
    )
    if key not in shared.products:
        shared.products[key] = _halves_product(x, weight)
    return shared.products[key]


def _is_among(tensor: Tensor, tensors: Sequence[Tensor | None]) -> bool:
    """True for one of the tensors and for views of them."""
    memory = tensor.untyped_storage().data_ptr()
    return any(one is not None and one.untyped_storage().data_ptr() == memory for one in tensors)


def _halves_product(x: Tensor, weight: Tensor) -> Tensor:
    """The product of 16-bit matrices in float64."""
    rows = x.reshape(-1, x.shape[-1]).float()
    product = torch.zeros(len(rows), weight.shape[1], dtype=torch.float64)
    for block in _blocks(weight):
        wide = weight[:, block].float()
        total = product[:, block]
        for first in range(0, len(wide), _TERMS):
            terms = slice(first, first + _TERMS)
            total += rows[:, terms] @ wide[terms]
    return product.reshape(*x.shape[:-1], -1)


def _magnitudes_product(x: Tensor, weight: Tensor, sizes: Magnitudes) -> Tensor:
    """``sum |x||weight|`` in float32 over the terms where ``x`` is largest, in runs of them."""
    rows = x.reshape(-1, x.shape[-1]).float().abs_()
    runs = [slice(start, start + _TERMS) for start in range(0, rows.shape[1], _TERMS)]
    kept = max(1, round(len(runs) * sizes.part))
    sizes.is_part |= kept < len(runs)
    sizes.used.add(weight.untyped_storage().data_ptr())
    runs.sort(key=lambda run: float(rows[:, run].square().sum()), reverse=True)
    product = torch.zeros(len(rows), weight.shape[1])
    for terms in runs[:kept]:
        own = rows[:, terms]
        part = weight[terms]
        for block in _blocks(part):
            product[:, block] += own @ part[:, block].float().abs_()
    return product.reshape(*x.shape[:-1], -1)
