"""AllGatherV: tensors of all ranks, of different lengths, joined."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, collective_op
from ait_llm.opcheck.golden.ranks import MOVED, counts, of_all_ranks, piece, rank_size
from ait_llm.opcheck.golden.shapes import (
    F16,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "AllGatherVOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape with as many rows as the shape holder (input 4) has entries."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, [(x, I64, I64, I64, F16) for x in MOVED])
    size = rank_size(NAME, params)
    check_shape(NAME, descs, 1, (1,))
    check_shape(NAME, descs, 2, (size,))
    check_shape(NAME, descs, 3, (size,))
    check_rank(NAME, descs, 4, 1)
    if not descs[0].shape:
        raise refused(NAME, "input 0 has no dimensions; it takes at least one")
    return (replace(descs[0], (descs[4].shape[0], *descs[0].shape[1:])),)


@collective_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """``recvCounts[r]`` elements of rank r at element ``rdispls[r]``; other elements are zero.

    Inputs: x; sendCount ``[1]``; recvCounts and rdispls ``[rankSize]``; a shape holder whose
    length is the number of output rows.
    """
    tensors = of_all_ranks(NAME, inputs, params, same_shape=False)
    results = []
    for own, x in zip(inputs, tensors, strict=True):
        received = counts(NAME, {}, "recvCounts", len(tensors), tensor_at(NAME, own, 2))
        places = counts(NAME, {}, "rdispls", len(tensors), tensor_at(NAME, own, 3))
        out = x.new_zeros(len(tensor_at(NAME, own, 4)), *x.shape[1:])
        flat = out.view(-1)
        for source, count, start in zip(tensors, received, places, strict=True):
            part = piece(NAME, source.reshape(-1), 0, count, "recvCounts")
            piece(NAME, flat, start, count, "rdispls").copy_(part)
        results.append(Result((out,)))
    return tuple(results)
