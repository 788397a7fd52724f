"""BlockCopy: whole blocks of both caches copied to others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "BlockCopyOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """No formal output."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, [(x, x, I32, I32, I32) for x in (F16, BF16, I8)])
    check_rank(NAME, descs, 0, 4)
    check_shape(NAME, descs, 1, descs[0].shape)
    check_rank(NAME, descs, 2, 1)
    check_rank(NAME, descs, 3, 1)
    check_shape(NAME, descs, 4, descs[2].shape)
    blocks = descs[0].shape[0]
    if max(descs[2].shape[0], descs[3].shape[0]) > blocks:
        raise refused(NAME, f"there are more block numbers than the {blocks} blocks")
    return ()


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``cache[target[j]] = cache[source[i]]`` for j from ``ends[i - 1]`` to ``ends[i]``.

    Blocks are read before any is written; the layout of a block does not matter. Inputs: key and
    value cache, both overwritten; sources ``[n]``; targets ``[m]``; cumulated counts ``[n]``.
    """
    sources, targets, ends = (tensor_at(NAME, inputs, i).reshape(-1).long() for i in (2, 3, 4))
    counts = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64))
    blocks = len(tensor_at(NAME, inputs, 0))
    used = torch.cat([sources, targets])
    if bool((counts < 0).any()) or (len(ends) and int(ends[-1]) > len(targets)):
        raise refused(NAME, f"cumulated counts {ends.tolist()} do not fit {len(targets)} targets")
    if bool((used < 0).any()) or bool((used >= blocks).any()):
        raise refused(NAME, f"a block number is outside the {blocks} blocks")
    picked = sources.repeat_interleave(counts)
    updated = {}
    for index in (0, 1):
        cache = tensor_at(NAME, inputs, index)
        changed = cache.clone()
        changed[targets[: len(picked)]] = cache[picked]
        updated[index] = changed
    return Result((), updated)
