"""Bit equality, for operators that move data and for integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ait_llm.judge.standards.base import Judgement, Output, standards

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = "every bit"


@standards.register("exact")
def exact(output: Output) -> Judgement:
    """Judge by bits.

    Where an operator computes, any NaN equals any NaN: which one arithmetic makes is not defined.
    Where it moves data, the bits of a NaN are data like any other, but for its sign.
    """
    different = ~_same_bits(output)
    if output.defined is not None:
        different &= output.defined
    count = int(different.sum())
    values = {"different": float(count)}
    if not count:
        return Judgement(True, LIMIT, values=values)
    return Judgement(
        False,
        LIMIT,
        f"{count} of {different.numel()} elements have other bits than golden",
        values,
        int(different.reshape(-1).int().argmax()),
    )


def _same_bits(output: Output) -> Tensor:
    import torch

    golden, mine = output.golden, output.mine
    if golden.dtype != mine.dtype:  # signed and unsigned, which hold the same numbers
        return golden.to(torch.int64) == mine.to(torch.int64)
    if not golden.dtype.is_floating_point:
        return golden == mine
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[golden.dtype.itemsize]
    same = golden.contiguous().view(whole) == mine.contiguous().view(whole)
    if bool(same.all()):
        return same
    neither = golden.isnan() & mine.isnan()
    if output.computation.golden.kernel(output.computation.params).keeps_nan:
        digits = torch.iinfo(whole).max if whole.is_signed else 0x7F
        payloads = (one.contiguous().view(whole) & digits for one in (golden, mine))
        neither &= torch.eq(*payloads)
    return same | neither
