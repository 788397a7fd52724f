"""Broadcast: the root's tensor on all ranks, in the memory of each rank's input."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, collective_op
from ait_llm.opcheck.golden.ranks import check_moved, of_all_ranks
from ait_llm.opcheck.golden.shapes import check_count
from ait_llm.opcheck.golden.support import int_param, refused

NAME = "BroadcastOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """No formal output."""
    check_count(NAME, descs, 1)
    check_moved(NAME, descs)
    return ()


@collective_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """``x = x_rankRoot`` on every rank. Input: x, which is overwritten."""
    tensors = of_all_ranks(NAME, inputs, params)
    root = int_param(NAME, params[0], "rankRoot", 0)
    if not 0 <= root < len(tensors):
        raise refused(NAME, f"rankRoot is {root}; the group has {len(tensors)} ranks")
    return tuple(Result((), {0: tensors[root].clone()}) for _ in tensors)
