"""Pad: the hidden state of the last token of each sequence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    F16,
    I32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused, tensor_at

NAME = "PadOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[B, H]``."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, ((F16, I32, I32, I64),))
    for index in range(4):
        check_rank(NAME, descs, index, 2)
    tokens, batch = descs[0].shape[0], descs[3].shape[0]
    check_shape(NAME, descs, 1, (1, tokens))
    check_shape(NAME, descs, 2, (batch, 1))
    return (replace(descs[0], (batch, descs[0].shape[1])),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Row ``cumsum(lengths) - 1`` of the packed states for each sequence.

    Inputs: states ``[T, H]``; padding offsets (not needed); lengths ``[B, 1]``; token ids (their
    first dimension is B).
    """
    states, lengths = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 2)
    last = lengths.reshape(-1).long().cumsum(0) - 1
    if bool((last < 0).any()) or bool((last >= len(states)).any()):
        raise refused(
            NAME, f"lengths {lengths.reshape(-1).tolist()} do not fit {len(states)} tokens"
        )
    return Result((states.index_select(0, last),))
