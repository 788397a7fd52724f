"""NormRopeReshape: normalised latent keys and rotated keys into a paged cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.rms_norm import reciprocal_rms
from ait_llm.opcheck.golden.rope import rotate_half
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I32,
    check_count,
    check_dtypes,
    check_last_dim,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.slots import write_slots
from ait_llm.opcheck.golden.support import float_param, int_param, refused, tensor_at

NAME = "NormRopeReshapeOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The cache keeps its description."""
    check_count(NAME, descs, 7)
    check_dtypes(NAME, descs, [(*(x,) * 5, I32, x) for x in (F16, BF16)])
    for index, rank in enumerate((3, 1, 2, 2, 2, 1, 4)):
        check_rank(NAME, descs, index, rank)
    tokens, heads, size = descs[0].shape
    check_shape(NAME, descs, 1, (size,))
    rope = descs[2].shape[1]
    for index in (2, 3, 4):
        check_shape(NAME, descs, index, (tokens, rope))
    check_shape(NAME, descs, 5, (tokens,))
    check_shape(NAME, descs, 6, (*descs[6].shape[:2], heads, size + rope))
    check_last_dim(NAME, descs, 16)
    if int_param(NAME, params, "rotaryCoeff", 2) != 2:
        raise refused(NAME, "rotaryCoeff takes 2, the rotation of halves")
    return (descs[6],)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``cache[slot[t]] = (rms_norm(x[t]) * gamma, rope(key[t]))``; a negative slot is skipped.

    Every head of a token gets the same rotated key. Inputs: x ``[T, h, D1]``; gamma ``[D1]``; key,
    cos, sin ``[T, D2]``; slots ``[T]``; cache ``[nb, bs, h, D1 + D2]``, which is overwritten.
    """
    x, gamma, key, cos, sin = (arithmetic.widen(tensor_at(NAME, inputs, i)) for i in range(5))
    slots, cache = tensor_at(NAME, inputs, 5), tensor_at(NAME, inputs, 6)
    epsilon = float_param(NAME, params, "epsilon", 1e-5)
    normalised = x * reciprocal_rms(x, (-1,), epsilon) * gamma
    rotated = rotate_half(key, cos, sin).unsqueeze(1).expand(-1, x.shape[1], -1)
    tokens = torch.cat([normalised, rotated], dim=-1).to(cache.dtype)
    written = write_slots(NAME, cache, tokens, slots, blocked=False)
    return Result((written,), {6: written})
