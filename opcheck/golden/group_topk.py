"""GroupTopk: experts of all but the best groups set to zero."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import enum_param, int_param, refused, tensor_at

NAME = "GroupTopkOperation"


class GroupScore(IntEnum):
    """Values of ``groupMultiFlag``."""

    MAX = 0
    SUM_OF_TOP = 1


def _groups(params: Params, experts: int) -> tuple[int, int, int]:
    """Number of groups, groups to keep and values that make a group's score."""
    number, keep = int_param(NAME, params, "groupNum", 1), int_param(NAME, params, "k", 0)
    flag = enum_param(NAME, params, "groupMultiFlag", GroupScore, 0)
    top = 1 if flag is GroupScore.MAX else int_param(NAME, params, "n", 1)
    if number < 1 or experts % number or not 0 < keep <= number:
        raise refused(
            NAME,
            f"groupNum {number} must divide {experts} experts, and k {keep} be 1 to groupNum",
        )
    if not 1 <= top <= experts // number:
        raise refused(NAME, f"parameter n is {top}; it takes 1 to {experts // number}")
    return number, keep, top


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of the tokens."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, ((F16, I32), (BF16, I32)))
    check_rank(NAME, descs, 0, 2)
    check_shape(NAME, descs, 1, (1024,))
    if not 1 <= descs[0].shape[1] <= 1024:
        raise refused(NAME, f"there are {descs[0].shape[1]} experts; it takes 1 to 1024")
    _groups(params, descs[0].shape[1])
    return (descs[0],)


def best_groups(scores: Tensor, keep: int) -> Tensor:
    """Which of the groups ``[T, groups]`` are the best ``keep``; of equal ones the first."""
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    kept = torch.zeros_like(scores, dtype=torch.bool)
    return kept.scatter(-1, order[:, :keep], True)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Zero the entries of every group whose score is not among the best k of its row.

    A score is the largest value of the group, or the sum of its n largest. Inputs: tokens
    ``[T, E]``, which are overwritten; an index table (not needed).
    """
    x = tensor_at(NAME, inputs, 0)
    number, keep, top = _groups(params, x.shape[1])
    grouped = x.reshape(len(x), number, x.shape[1] // number)
    scores = arithmetic.widen(grouped).topk(top, dim=-1).values.sum(dim=-1)
    kept = best_groups(scores, keep).unsqueeze(-1)
    changed = grouped.masked_fill(~kept, 0).reshape(x.shape)
    return Result((changed,), {0: changed})
