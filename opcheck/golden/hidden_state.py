"""PadWithHiddenState and UnpadWithHiddenState: hidden states between padded and packed form."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    MOVES,
    Arithmetic,
    Params,
    Result,
    UnverifiableError,
    golden_op,
)
from ait_llm.opcheck.golden.shapes import F16, check_count, check_dtypes, check_rank, replace
from ait_llm.opcheck.golden.slots import segments
from ait_llm.opcheck.golden.support import int_param, ints_param, optional_at, refused, tensor_at

PAD = "PadWithHiddenStateOperation"
UNPAD = "UnpadWithHiddenStateOperation"
_LONGEST = 4096


def _lengths(op: str, params: Params) -> tuple[tuple[int, ...], int]:
    """Length of each sequence and of the padded ones.

    Raises:
        UnverifiableError: the lengths are not known.
    """
    if "qSeqLen" not in params:
        raise UnverifiableError(f"{op}: dumps carry no parameters, and qSeqLen is needed")
    longest = int_param(op, params, "maxSeqLen", _LONGEST)
    lengths = ints_param(op, params, "qSeqLen")
    if any(not 0 <= length <= longest for length in lengths):
        raise refused(op, f"qSeqLen is {list(lengths)}; it takes lengths of 0 to {longest}")
    return lengths, longest


def infer_shape_unpad(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[sum(qSeqLen), H]`` for ``[B, maxSeqLen, H]``."""
    check_count(UNPAD, descs, 1)
    check_dtypes(UNPAD, descs, [(F16,)])
    check_rank(UNPAD, descs, 0, 3)
    lengths, longest = _lengths(UNPAD, params)
    if descs[0].shape[:2] != (len(lengths), longest):
        raise refused(
            UNPAD, f"input 0 has shape {list(descs[0].shape)}; it starts {len(lengths)}, {longest}"
        )
    return (replace(descs[0], (sum(lengths), descs[0].shape[2])),)


def infer_shape_pad(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[B, maxSeqLen, H]`` for ``[sum(qSeqLen), H]``."""
    check_count(PAD, descs, 1)
    check_dtypes(PAD, descs, [(F16,)])
    check_rank(PAD, descs, 0, 2)
    lengths, longest = _lengths(PAD, params)
    if descs[0].shape[0] != sum(lengths):
        raise refused(
            PAD, f"input 0 has {descs[0].shape[0]} rows; qSeqLen adds up to {sum(lengths)}"
        )
    return (replace(descs[0], (len(lengths), longest, descs[0].shape[1])),)


def _from_padding(padded: Tensor, packed: Tensor, params: Params) -> Params:
    """Lengths from the zero tails of the padded tensor, if they account for all packed rows."""
    used = (padded != 0).any(dim=-1)
    last = torch.arange(1, padded.shape[1] + 1) * used
    lengths = last.amax(dim=1).tolist() if padded.shape[1] else [0] * len(padded)
    if sum(lengths) != len(packed):
        return params
    return {"qSeqLen": lengths, "maxSeqLen": padded.shape[1], **params}


def _recover_unpad(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """Dumps carry no parameters: padding of the input is taken to be zero."""
    padded, packed = optional_at(inputs, 0), optional_at(outputs, 0)
    if padded is None or packed is None or padded.dim() != 3:
        return params
    return _from_padding(padded, packed, params)


def _recover_pad(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """Dumps carry no parameters: lengths are those of the output without its zero tails."""
    packed, padded = optional_at(inputs, 0), optional_at(outputs, 0)
    if padded is None or packed is None or padded.dim() != 3:
        return params
    return _from_padding(padded, packed, params)


@golden_op(UNPAD, infer_shape=infer_shape_unpad, recover=_recover_unpad, kernel=MOVES)
def compute_unpad(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """Rows ``x[b, :qSeqLen[b]]`` one after the other. Input: x ``[B, maxSeqLen, H]``."""
    x = tensor_at(UNPAD, inputs, 0)
    lengths, _ = _lengths(UNPAD, params)
    sequence, position = segments(torch.tensor(lengths, dtype=torch.int64))
    return Result((x[sequence, position],))


@golden_op(PAD, infer_shape=infer_shape_pad, recover=_recover_pad, kernel=MOVES)
def compute_pad(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """The inverse: packed rows at their places, zero elsewhere. Input: x ``[sum(qSeqLen), H]``."""
    x = tensor_at(PAD, inputs, 0)
    lengths, longest = _lengths(PAD, params)
    sequence, position = segments(torch.tensor(lengths, dtype=torch.int64))
    padded = x.new_zeros(len(lengths), longest, x.shape[1])
    padded[sequence, position] = x
    return Result((padded,))
