"""Multinomial: token numbers drawn with the probabilities of each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.glibc_random import uniform
from ait_llm.opcheck.golden.shapes import (
    F16,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    replace,
)
from ait_llm.opcheck.golden.support import int_param, refused, tensor_at

NAME = "MultinomialOperation"


def _samples(params: Params) -> int:
    samples = int_param(NAME, params, "numSamples", 1)
    if not 1 <= samples <= 64:
        raise refused(NAME, f"parameter numSamples is {samples}; it takes 1 to 64")
    return samples


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[T, numSamples]`` int32."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, ((F16,),))
    check_rank(NAME, descs, 0, 2)
    return (replace(descs[0], (descs[0].shape[0], _samples(params)), I32),)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """First index whose prefix sum, kept in float16, reaches the random number.

    All rows share the first ``numSamples`` numbers that glibc gives for ``randSeed``. A seed of
    2**32 - 1 means the wall clock on the device and cannot be reproduced.
    """
    probs = tensor_at(NAME, inputs, 0)
    numbers = uniform([int_param(NAME, params, "randSeed", 0)], _samples(params))[0]
    sums = probs.float().cumsum(-1).to(probs.dtype).float().contiguous()
    picked = torch.searchsorted(sums, numbers.expand(len(probs), -1).contiguous())
    return Result((picked.clamp(max=probs.shape[1] - 1).to(torch.int32),))
