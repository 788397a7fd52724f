"""StridedBatchMatmul: products of matrices of several sizes that lie strided in flat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import PRODUCTS, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import F16, check_count, check_dtypes, replace, same
from ait_llm.opcheck.golden.support import bool_param, int_param, ints_param, refused, tensor_at

NAME = "StridedBatchMatmulOperation"
_LISTS = ("m", "n", "k", "lda", "ldb", "ldc", "strideA", "strideB", "strideC")


@dataclass(frozen=True, slots=True)
class _Product:
    """Sizes of the products of one batch entry, and where its first operands begin."""

    m: int
    n: int
    k: int
    row_steps: tuple[int, int, int]
    head_steps: tuple[int, int, int]
    starts: tuple[int, int, int]


def _products(params: Params) -> tuple[int, list[_Product]]:
    batch, heads = int_param(NAME, params, "batch", 1), int_param(NAME, params, "headNum", 1)
    lists = [ints_param(NAME, params, key) for key in _LISTS]
    if batch < 1 or heads < 1 or any(len(values) != batch for values in lists):
        raise refused(
            NAME,
            f"batch {batch} and headNum {heads} must be positive, and {', '.join(_LISTS)} have "
            "one entry per batch entry",
        )
    products, starts = [], (0, 0, 0)
    for m, n, k, *steps in zip(*lists, strict=True):
        rows, strides = tuple(steps[:3]), tuple(steps[3:])
        products.append(
            _Product(
                m, n, k, (rows[0], rows[1], rows[2]), (strides[0], strides[1], strides[2]), starts
            )
        )
        starts = (
            starts[0] + m * k * heads,
            starts[1] + n * k * heads,
            starts[2] + m * n * heads,
        )
    return heads, products


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Flat, the sum of ``m * n * headNum``."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, same(F16, count=2))
    heads, products = _products(params)
    return (replace(descs[0], (heads * sum(entry.m * entry.n for entry in products),)),)


def _view(
    flat: Tensor, entry: _Product, operand: int, heads: int, rows: int, columns: int
) -> Tensor:
    """``[heads, rows, columns]`` of an operand: 0 is A, 1 is B, 2 is C.

    Row t of head j begins at ``start + stride * j + ld * t``.
    """
    steps = (entry.head_steps[operand], entry.row_steps[operand], 1)
    start = entry.starts[operand]
    last = start + steps[0] * (heads - 1) + steps[1] * (rows - 1) + columns - 1
    if last >= flat.numel():
        raise refused(
            NAME,
            f"the strides of operand {'ABC'[operand]} reach element {last} of {flat.numel()}",
        )
    return torch.as_strided(flat, (heads, rows, columns), steps, start)


@golden_op(NAME, infer_shape=infer_shape, kernel=PRODUCTS)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``C = op(A) . op(B)`` for every batch entry and head, rounded once."""
    heads, products = _products(params)
    transpose_a = bool_param(NAME, params, "transposeA", False)
    transpose_b = bool_param(NAME, params, "transposeB", False)
    left, right = (tensor_at(NAME, inputs, index).reshape(-1) for index in (0, 1))
    total = heads * sum(entry.m * entry.n for entry in products)
    output = torch.zeros(total, dtype=arithmetic.widen(left[:0]).dtype)
    for entry in products:
        shape_a = (entry.k, entry.m) if transpose_a else (entry.m, entry.k)
        shape_b = (entry.n, entry.k) if transpose_b else (entry.k, entry.n)
        a = arithmetic.widen(_view(left, entry, 0, heads, *shape_a))
        b = arithmetic.widen(_view(right, entry, 1, heads, *shape_b))
        product = torch.bmm(a.mT if transpose_a else a, b.mT if transpose_b else b)
        _view(output, entry, 2, heads, entry.m, entry.n).copy_(product)
    return Result((arithmetic.round(output, left.dtype),))
