"""ReduceScatter: a reduction over all ranks, of which each rank keeps its part."""

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
    check_moved,
    of_all_ranks,
    rank_size,
    reduced,
    reduction_kernel,
)
from ait_llm.opcheck.golden.shapes import I64, check_count, replace
from ait_llm.opcheck.golden.support import refused

NAME = "ReduceScatterOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """x's shape with ``1 / rankSize`` of its rows."""
    check_count(NAME, descs, 1)
    check_moved(NAME, descs, without=(I64,))
    size, shape = rank_size(NAME, params), descs[0].shape
    if not shape or shape[0] % size:
        raise refused(NAME, f"input 0 has shape {list(shape)}; its rows must divide by {size}")
    return (replace(descs[0], (shape[0] // size, *shape[1:])),)


@collective_op(NAME, infer_shape=infer_shape, kernel=reduction_kernel)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """Rank r receives part r of the rows of the reduction. Input: x, of one shape on all ranks."""
    tensors = of_all_ranks(NAME, inputs, params)
    if tensors[0].shape[0] % len(tensors):
        raise refused(NAME, f"{tensors[0].shape[0]} rows do not divide by {len(tensors)} ranks")
    how = str(params[0].get("reduceType", "sum"))
    total = reduced(NAME, [arithmetic.widen(tensor) for tensor in tensors], how)
    rounded = arithmetic.round(total, tensors[0].dtype)
    return tuple(Result((part.clone(),)) for part in rounded.chunk(len(tensors), dim=0))
