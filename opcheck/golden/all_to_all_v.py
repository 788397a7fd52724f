"""AllToAllV and AllToAllVV2: unequal parts exchanged between all ranks.

They differ in where the counts are: AllToAllV has them in its parameters, AllToAllVV2 in tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, collective_op
from ait_llm.opcheck.golden.ranks import MOVED, check_moved, counts, of_all_ranks, piece, rank_size
from ait_llm.opcheck.golden.shapes import (
    I8,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "AllToAllVOperation"
BY_TENSORS = "AllToAllVV2Operation"
_KEYS = ("sendCounts", "sdispls", "recvCounts", "rdispls")


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[1, sum(recvCounts)]``."""
    check_count(NAME, descs, 1)
    check_moved(NAME, descs)
    size = rank_size(NAME, params)
    sent, sent_at, received, placed = (counts(NAME, params, key, size) for key in _KEYS)
    total, elements = sum(received), descs[0].elements
    for count, start, limit in (
        *zip(sent, sent_at, [elements] * size, strict=True),
        *zip(received, placed, [total] * size, strict=True),
    ):
        if count + start > limit:
            raise refused(NAME, f"{count} elements at {start} are past the end, {limit}")
    if total == 0:
        raise refused(NAME, "recvCounts adds up to 0; give at least one element")
    return (replace(descs[0], (1, total)),)


def infer_shape_by_tensors(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[1, n]`` for a shape holder of n entries."""
    check_count(BY_TENSORS, descs, 6)
    check_dtypes(BY_TENSORS, descs, [(x, I64, I64, I64, I64, I8) for x in MOVED])
    for index in range(1, 5):
        check_shape(BY_TENSORS, descs, index, (rank_size(BY_TENSORS, params),))
    check_rank(BY_TENSORS, descs, 5, 1)
    return (replace(descs[0], (1, descs[5].shape[0])),)


Tables = Sequence[tuple[int, ...]]


def _exchange(
    op: str, tensors: Sequence[Tensor], tables: Sequence[Tables], lengths: Sequence[int]
) -> tuple[Result, ...]:
    results = []
    for rank, length in enumerate(lengths):
        _, _, received, placed = tables[rank]
        out = tensors[rank].new_zeros(length)
        for source, (sent, sent_at, _, _) in enumerate(tables):
            if sent[rank] != received[source]:
                raise refused(
                    op,
                    f"rank {source} sends {sent[rank]} elements to rank {rank}, which expects "
                    f"{received[source]}",
                )
            flat = tensors[source].reshape(-1)
            part = piece(op, flat, sent_at[rank], sent[rank], f"rank {source}")
            piece(op, out, placed[source], sent[rank], f"rank {rank}").copy_(part)
        results.append(Result((out.unsqueeze(0),)))
    return tuple(results)


@collective_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """Rank i gets ``x_j[sdispls_j[i]:][:sendCounts_j[i]]`` at ``rdispls_i[j]``.

    Counts are those of the sending rank. Input: x, taken as flat elements.
    """
    tensors = of_all_ranks(NAME, inputs, params, same_shape=False)
    size = len(tensors)
    tables = [[counts(NAME, own, key, size) for key in _KEYS] for own in params]
    return _exchange(NAME, tensors, tables, [sum(table[2]) for table in tables])


@collective_op(BY_TENSORS, infer_shape=infer_shape_by_tensors, kernel=MOVES)
def compute_ranks_by_tensors(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """The same with counts in tensors.

    Inputs: x; sendCounts, sdispls, recvCounts, rdispls ``[rankSize]``; a shape holder as long as
    the output.
    """
    tensors = of_all_ranks(BY_TENSORS, inputs, params, same_shape=False)
    tables = [
        [
            counts(BY_TENSORS, {}, key, len(tensors), tensor_at(BY_TENSORS, own, index + 1))
            for index, key in enumerate(_KEYS)
        ]
        for own in inputs
    ]
    lengths = [tensor_at(BY_TENSORS, own, 5).numel() for own in inputs]
    return _exchange(BY_TENSORS, tensors, tables, lengths)
