"""KvCache: new keys or values into a contiguous cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    F16,
    I8,
    I32,
    U32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.slots import segments
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "KvCacheOperation"
_DTYPES = [(x, n, x, n, n) for x in (F16, I8) for n in (I32, U32)]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """No formal output."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, _DTYPES)
    for index, ranks in enumerate(((2, 4), (1,), (4, 5), (1,), (1,))):
        check_rank(NAME, descs, index, *ranks)
    new, _, past, _, _ = descs
    width = past.shape[3] if len(past.shape) == 4 else past.shape[2] * past.shape[4]
    got = new.shape[1] if len(new.shape) == 2 else new.shape[2] * new.shape[3]
    multiple = 32 if past.dtype is I8 else 16
    if got != width or width % multiple:
        raise refused(
            NAME,
            f"new tokens have {got} entries and cached ones {width}; they must be equal and a "
            f"multiple of {multiple}",
        )
    for index in (3, 4):
        check_shape(NAME, descs, index, (past.shape[1],))
    return ()


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``past[layer, i, end[i] - length[i] + t] = new[first[i] + t]``; what was there stays.

    Inputs: new tokens ``[T, N]`` or ``[B, s, H, D]``; layer ``[1]``; past ``[layers, B, S, N]``
    (NZ ``[layers, B, N / 16, S, 16]``), which is overwritten; ends ``[B]``; lengths ``[B]``.
    """
    new, past = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 2)
    layer = int(tensor_at(NAME, inputs, 1).reshape(-1)[0])
    ends, lengths = (tensor_at(NAME, inputs, i).reshape(-1).to(torch.int64) for i in (3, 4))
    tokens = new if new.dim() == 2 else new.flatten(0, 1).flatten(1)
    sequence, position = segments(lengths)
    row = ends[sequence] - lengths[sequence] + position
    changed = past.clone()
    entries = changed[layer] if past.dim() == 4 else changed[layer].transpose(1, 2)
    outside = bool((row < 0).any()) or bool((row >= entries.shape[1]).any())
    if outside or len(sequence) > len(tokens):
        raise refused(
            NAME,
            f"lengths {lengths.tolist()} ending at {ends.tolist()} do not fit {len(tokens)} tokens "
            f"and a cache of {entries.shape[1]}",
        )
    source = tokens[: len(sequence)]
    entries[sequence, row] = source.reshape(len(sequence), *entries.shape[2:])
    return Result((), {2: changed})
