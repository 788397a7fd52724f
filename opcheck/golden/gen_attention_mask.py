"""GenAttentionMask: each sequence's part of a padded mask, once per head, packed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import F16, check_count, check_dtypes, check_rank, replace
from ait_llm.opcheck.golden.support import int_param, ints_param, refused, tensor_at

NAME = "GenAttentionMaskOperation"


def _sizes(params: Params, shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    heads, lengths = int_param(NAME, params, "headNum", 1), ints_param(NAME, params, "seqLen")
    if heads < 1 or len(lengths) != shape[0] or min(lengths) < 1 or max(lengths) > shape[2]:
        raise refused(
            NAME,
            f"headNum {heads} and seqLen {list(lengths)} do not fit a mask of {list(shape)}; give "
            "one length per sequence",
        )
    return heads, lengths


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Flat, ``headNum`` times the sum of squared lengths."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, ((F16,),))
    check_rank(NAME, descs, 0, 4)
    heads, lengths = _sizes(params, descs[0].shape)
    return (replace(descs[0], (heads * sum(size * size for size in lengths),)),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``mask[i, 0, :s, :s]`` repeated for each head, for every sequence i of s tokens."""
    mask = tensor_at(NAME, inputs, 0)
    heads, lengths = _sizes(params, mask.shape)
    parts = [
        mask[index, 0, :size, :size].reshape(-1).repeat(heads) for index, size in enumerate(lengths)
    ]
    return Result((torch.cat(parts),))
