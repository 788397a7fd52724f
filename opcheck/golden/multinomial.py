"""Multinomial: token numbers drawn with the probabilities of each row."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    DEVICE,
    Arithmetic,
    Params,
    Result,
    UnverifiableError,
    golden_op,
)
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
_CLOCK = 2**32 - 1
# Prefix sums near 1 in float16 are off by this much after rounding.
_ROUNDING = 2.0**-9


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


def _sums(probs: Tensor) -> Tensor:
    """Prefix sums kept in the dtype of the probabilities, as float32."""
    return probs.float().cumsum(-1).to(probs.dtype).float().contiguous()


def _accepts(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params) -> bool:
    """Whether one random number per sample explains the draws of all rows.

    A draw may miss its number by the rounding of the prefix sums. With the clock as seed the
    numbers are not known, but all rows share them.
    """
    probs, picked = tensor_at(NAME, inputs, 0), outputs[0].to(torch.int64)
    samples, last = _samples(params), probs.shape[1] - 1
    if picked.shape != (len(probs), samples) or bool(((picked < 0) | (picked > last)).any()):
        return False
    sums = _sums(probs)
    upper = sums.gather(1, picked).masked_fill(picked == last, 2.0) + _ROUNDING
    lower = sums.gather(1, (picked - 1).clamp(min=0)).masked_fill(picked == 0, 0.0) - _ROUNDING
    seed = int_param(NAME, params, "randSeed", 0)
    if seed == _CLOCK:
        explained = bool((lower.amax(0) <= upper.amin(0)).all())
    else:
        number = uniform([seed], samples)
        explained = bool(((lower <= number) & (number <= upper)).all())
    return explained and bool((probs.gather(1, picked) > 0).all())


@golden_op(NAME, infer_shape=infer_shape, accepts=_accepts)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """First index whose prefix sum, kept in float16, reaches the random number.

    All rows share the first ``numSamples`` numbers that glibc gives for ``randSeed``. A seed of
    2**32 - 1 means the wall clock; a simulated device takes its own clock then.

    Raises:
        UnverifiableError: the seed was the clock of the device.
    """
    probs = tensor_at(NAME, inputs, 0)
    seed = int_param(NAME, params, "randSeed", 0)
    if seed == _CLOCK:
        if arithmetic != DEVICE:
            raise UnverifiableError(
                f"{NAME}: randSeed is {_CLOCK}, the wall clock of the device; the draws can only "
                "be tested for one random number per sample"
            )
        seed = int(time.time()) & _CLOCK
    numbers = uniform([seed], _samples(params))[0]
    sums = _sums(probs)
    picked = torch.searchsorted(sums, numbers.expand(len(probs), -1).contiguous())
    return Result((picked.clamp(max=probs.shape[1] - 1).to(torch.int32),))
