"""ReduceScatterV: a reduction over all ranks, shared out in unequal parts."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    Params,
    Result,
    collective_op,
)
from ait_llm.opcheck.golden.ranks import (
    counts,
    of_all_ranks,
    piece,
    rank_size,
    reduced,
    reduction_kernel,
)
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "ReduceScatterVOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape with as many rows as the shape holder (input 4) has entries."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, [(x, I64, I64, I64, F16) for x in (F16, I8, BF16)])
    size = rank_size(NAME, params)
    check_rank(NAME, descs, 0, 2)
    check_shape(NAME, descs, 1, (size,))
    check_shape(NAME, descs, 2, (size,))
    check_shape(NAME, descs, 3, (1,))
    check_rank(NAME, descs, 4, 1)
    return (replace(descs[0], (descs[4].shape[0], descs[0].shape[1])),)


@collective_op(NAME, infer_shape=infer_shape, kernel=reduction_kernel)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """Rank r receives ``recvCount`` elements of the reduction from ``sdispls[r]`` on.

    Inputs: x ``[rows, columns]``; sendCounts and sdispls ``[rankSize]``; recvCount ``[1]``; a shape
    holder whose length is the number of output rows. Elements past the count are zero.
    """
    tensors = of_all_ranks(NAME, inputs, params)
    how = str(params[0].get("reduceType", "sum"))
    total = reduced(NAME, [arithmetic.widen(tensor) for tensor in tensors], how)
    rounded = arithmetic.round(total, tensors[0].dtype).reshape(-1)
    results = []
    for rank, own in enumerate(inputs):
        sent = counts(NAME, {}, "sendCounts", len(tensors), tensor_at(NAME, own, 1))
        places = counts(NAME, {}, "sdispls", len(tensors), tensor_at(NAME, own, 2))
        count = int(tensor_at(NAME, own, 3).reshape(-1)[0])
        if count != sent[rank]:
            raise refused(NAME, f"rank {rank} receives {count} elements and is sent {sent[rank]}")
        out = rounded.new_zeros(len(tensor_at(NAME, own, 4)), *tensors[rank].shape[1:])
        part = piece(NAME, rounded, places[rank], count, "sdispls")
        piece(NAME, out.view(-1), 0, count, "recvCount").copy_(part)
        results.append(Result((out,)))
    return tuple(results)
