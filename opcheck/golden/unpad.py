"""Unpad: token ids of padded sequences, packed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    I32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.slots import segments
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "UnpadOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[1, B * S]`` ids, ``[B, 1]`` and ``[1, B * S]`` offsets."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, ((I64, I32, I64, I32),))
    check_rank(NAME, descs, 0, 2)
    batch, length = descs[0].shape
    check_shape(NAME, descs, 1, (batch, 1))
    check_shape(NAME, descs, 2, (1, 1))
    check_shape(NAME, descs, 3, (batch, 1))
    flat = (1, batch * length)
    return replace(descs[0], flat), replace(descs[1], (batch, 1)), replace(descs[1], flat)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Valid ids one after the other; what is past the last token is undefined.

    Inputs: ids ``[B, S]``; cumulated padding of each sequence ``[B, 1]``; number of tokens;
    lengths ``[B, 1]``. Outputs: packed ids; padding before each sequence; padding before each
    token.
    """
    ids, padding = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    lengths = tensor_at(NAME, inputs, 3).reshape(-1).long()
    if bool((lengths < 0).any()) or bool((lengths > ids.shape[1]).any()):
        raise refused(
            NAME, f"lengths {lengths.tolist()} do not fit sequences of {ids.shape[1]} tokens"
        )
    before = torch.roll(padding.reshape(-1), 1)
    before[0] = 0
    sequence, position = segments(lengths)
    packed = torch.zeros(ids.numel(), dtype=ids.dtype)
    packed[: len(sequence)] = ids[sequence, position]
    offsets = torch.zeros(ids.numel(), dtype=padding.dtype)
    offsets[: len(sequence)] = before[sequence]
    beyond = torch.arange(ids.numel()) >= len(sequence)
    outputs = (packed.unsqueeze(0), before.unsqueeze(1), offsets.unsqueeze(0))
    return Result(outputs, undefined={0: beyond, 2: beyond})
