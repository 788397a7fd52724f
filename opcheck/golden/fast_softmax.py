"""FastSoftMax and its gradient: softmax of square score matrices of several sizes, packed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import F16, check_count, check_dtypes, check_shape, same
from ait_llm.opcheck.golden.support import int_param, ints_param, refused, tensor_at

NAME = "FastSoftMaxOperation"
GRADIENT = "FastSoftMaxGradOperation"


def _sizes(op: str, params: Params) -> tuple[int, tuple[int, ...]]:
    """Heads, and the side of each sequence's matrices."""
    heads, lengths = int_param(op, params, "headNum", 0), ints_param(op, params, "qSeqLen")
    if heads < 1 or not lengths or min(lengths) < 1:
        raise refused(op, f"headNum is {heads} and qSeqLen {list(lengths)}; give positive numbers")
    return heads, lengths


def _infer(op: str, descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    check_count(op, descs, 1 if op == NAME else 2)
    check_dtypes(op, descs, same(F16, count=len(descs)))
    heads, lengths = _sizes(op, params)
    for index in range(len(descs)):
        check_shape(op, descs, index, (heads * sum(size * size for size in lengths),))
    return (descs[0],)


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The flat shape of x."""
    return _infer(NAME, descs, params)


def infer_gradient_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The flat shape of y."""
    return _infer(GRADIENT, descs, params)


def _matrices(flat: Tensor, heads: int, lengths: Sequence[int]) -> list[Tensor]:
    """Rows of each sequence, ``[heads * s, s]``."""
    counts = [heads * size * size for size in lengths]
    pieces = torch.split(flat.reshape(-1), counts)
    return [piece.reshape(-1, size) for piece, size in zip(pieces, lengths, strict=True)]


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Softmax of the rows of each sequence's ``headNum`` square matrices; x is flat."""
    x = tensor_at(NAME, inputs, 0)
    parts = _matrices(arithmetic.widen(x), *_sizes(NAME, params))
    y = torch.cat([part.softmax(dim=-1).reshape(-1) for part in parts])
    return Result((arithmetic.round(y.reshape(x.shape), x.dtype),))


@golden_op(GRADIENT, infer_shape=infer_gradient_shape)
def compute_gradient(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """``dx = y * (dy - sum(y * dy))`` by rows. Inputs: y, the softmax; dy."""
    y, dy = tensor_at(GRADIENT, inputs, 0), tensor_at(GRADIENT, inputs, 1)
    sizes = _sizes(GRADIENT, params)
    outputs = []
    for rows, gradient in zip(
        _matrices(arithmetic.widen(y), *sizes),
        _matrices(arithmetic.widen(dy), *sizes),
        strict=True,
    ):
        projected = (rows * gradient).sum(dim=-1, keepdim=True)
        outputs.append((rows * (gradient - projected)).reshape(-1))
    return Result((arithmetic.round(torch.cat(outputs).reshape(y.shape), y.dtype),))
