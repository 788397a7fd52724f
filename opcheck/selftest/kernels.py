"""Other kernels for the sums and matrix products inside a golden operator.

While a :class:`Kernels` context is active, every matrix product, sum, mean and softmax of floats
that torch computes goes through it. So one definition of "sums in another order" or "the last
terms are left out" holds for all operators, wherever their sums are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Terms that a matrix unit adds up at once; a 16-bit accumulator is rounded after each block.
_BLOCK = 16
_TAIL = 16
_CHUNKS = 4

Product = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Kernels:
    """How sums are computed.

    Attributes:
        product: ``[b, m, k]`` times ``[b, k, n]``.
        scores: what becomes of softmax inputs.
        probabilities: what becomes of softmax outputs before they are used.
    """

    product: Product
    scores: Callable[[Tensor], Tensor] = lambda values: values
    probabilities: Callable[[Tensor], Tensor] = lambda values: values

    def run(self, compute: Callable[[], Any]) -> Any:  # whatever compute returns
        """Call ``compute`` with these kernels."""
        with ExitStack() as stack:
            stack.enter_context(_Attention())
            stack.enter_context(_Sums(self))
            return compute()


def reordered() -> Kernels:
    """Terms are added in another order."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        order = torch.arange(a.shape[-1] - 1, -1, -1).reshape(-1)
        order = torch.cat([order[::2], order[1::2]])
        return torch.matmul(a[..., order], b[..., order, :])

    return Kernels(product)


def split_k() -> Kernels:
    """Four partial sums of consecutive terms, added at the end."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        chunks = min(_CHUNKS, a.shape[-1])
        parts = zip(a.tensor_split(chunks, -1), b.tensor_split(chunks, -2), strict=True)
        return torch.stack([torch.matmul(x, y) for x, y in parts]).sum(0)

    return Kernels(product)


def sequential(fused: bool) -> Kernels:
    """One term after the other, each product rounded or (``fused``) only the sum."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
        for term in range(a.shape[-1]):
            x, y = a[..., :, term, None], b[..., term, None, :]
            if fused:  # the product of two float32 is exact in float64
                total = (total.double() + x.double() * y.double()).to(a.dtype)
            else:
                total += x * y
        return total

    return Kernels(product)


def half_probabilities(dtype: torch.dtype, *, scores: bool = False) -> Kernels:
    """Softmax outputs, and ``scores`` too, are stored in 16 bits before they are used."""

    def store(values: Tensor) -> Tensor:
        return values.to(dtype).to(values.dtype)

    if scores:
        return Kernels(torch.matmul, store, store)
    return Kernels(torch.matmul, probabilities=store)


def half_exchange(dtype: torch.dtype, ranks: int) -> Kernels:
    """Sums of as many terms as there are ranks are kept in 16 bits, and so are their terms."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        if a.shape[-1] != ranks or b.shape[-1] != 1:  # not a sum over ranks
            return torch.matmul(a, b)
        total = a[..., :1].to(dtype)
        for term in range(1, ranks):
            total = total + a[..., term : term + 1].to(dtype)
        return total.to(a.dtype)

    return Kernels(product)


def half_accumulation(dtype: torch.dtype) -> Kernels:
    """The running sum is kept in 16 bits."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
        for start in range(0, a.shape[-1], _BLOCK):
            part = torch.matmul(a[..., start : start + _BLOCK], b[..., start : start + _BLOCK, :])
            total = (total + part).to(dtype).to(a.dtype)
        return total

    return Kernels(product)


def dropped_tail() -> Kernels:
    """The last 16 terms are left out, of short sums the last quarter."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        keep = a.shape[-1] - min(_TAIL, math.ceil(a.shape[-1] / 4))
        return torch.matmul(a[..., :keep], b[..., :keep, :])

    return Kernels(product)


def _total(kernels: Kernels, values: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    axes = sorted(dim % values.dim() for dim in dims) or list(range(values.dim()))
    rest = [axis for axis in range(values.dim()) if axis not in axes]
    flat = values.permute(*rest, *axes).reshape(*(values.shape[axis] for axis in rest), -1)
    rows = flat.reshape(1, -1, flat.shape[-1])
    total = kernels.product(rows, torch.ones(1, rows.shape[-1], 1, dtype=values.dtype))
    shape = [1 if axis in axes else size for axis, size in enumerate(values.shape)]
    return total.reshape(shape if keepdim else [values.shape[axis] for axis in rest])


class _Attention(TorchFunctionMode):
    """Takes torch's fused attention apart, so that its sums can be seen."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # the protocol of torch
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    return torch.matmul(torch.softmax(scores, dim=-1), value)


class _Sums(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Sends the sums that torch is about to compute to other kernels."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.kernels = kernels

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # the protocol of torch
        kwargs = kwargs or {}
        first = args[0] if args else None
        if not isinstance(first, Tensor) or first.dtype != torch.float32 or not first.numel():
            return func(*args, **kwargs)
        aten, kernels = torch.ops.aten, self.kernels
        if func is aten.mm.default:
            return kernels.product(args[0][None], args[1][None])[0]
        if func is aten.bmm.default:
            return kernels.product(args[0], args[1])
        if func is aten.addmm.default and not kwargs:
            return args[0] + kernels.product(args[1][None], args[2][None])[0]
        if func in (aten.sum.dim_IntList, aten.mean.dim):
            dims, keepdim = args[1] or (), len(args) > 2 and args[2]
            total = _total(kernels, first, dims, keepdim)
            return (
                total if func is aten.sum.dim_IntList else total / (first.numel() / total.numel())
            )
        if func is aten._softmax.default:
            dim, scores = args[1], kernels.scores(first)
            powers = torch.exp(scores - scores.amax(dim, keepdim=True))
            return kernels.probabilities(powers / _total(kernels, powers, [dim], True))
        return func(*args, **kwargs)
