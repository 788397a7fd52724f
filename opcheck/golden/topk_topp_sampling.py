"""TopkToppSampling: one token per row, drawn from the most probable ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import GOLDEN, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.glibc_random import uniform
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    enum_param,
    int_param,
    ints_param,
    refused,
    tensor_at,
)

NAME = "TopkToppSamplingOperation"
# The kernel walks the cumulated probabilities by blocks of this many.
_BLOCK = 16384
_LOG_HIDDEN = -9999.0
# Sums near 1 in float16 are off by this much after rounding.
_ROUNDING = 2.0**-9


class SamplingType(IntEnum):
    """Values of ``topkToppSamplingType``."""

    SINGLE_TOPK = 0
    BATCH_MULTINOMIAL = 1
    BATCH_EXPONENTIAL = 2
    MULTINOMIAL_LOGPROBS = 3
    EXPONENTIAL_LOGPROBS = 4


_EXPONENTIAL = (SamplingType.BATCH_EXPONENTIAL, SamplingType.EXPONENTIAL_LOGPROBS)
_LOGPROBS = (SamplingType.MULTINOMIAL_LOGPROBS, SamplingType.EXPONENTIAL_LOGPROBS)


def _type(params: Params) -> SamplingType:
    return enum_param(NAME, params, "topkToppSamplingType", SamplingType, 0)


def _topk(params: Params, vocabulary: int) -> int:
    topk = int_param(NAME, params, "topk", 100)
    if not 0 < topk <= vocabulary:
        raise refused(NAME, f"parameter topk is {topk}; it takes 1 to {vocabulary}")
    return topk


def _logprobs_size(params: Params, vocabulary: int) -> int:
    size = int_param(NAME, params, "logProbsSize", 0)
    if not 0 <= size <= vocabulary:
        raise refused(NAME, f"parameter logProbsSize is {size}; it takes 0 to {vocabulary}")
    return size


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[B, 1]`` indices and probabilities, and ``[B, logProbsSize]`` logarithms."""
    kind = _type(params)
    extra: tuple[DType, ...] = (F32,) if kind is SamplingType.MULTINOMIAL_LOGPROBS else ()
    rows: list[tuple[DType, ...]] = []
    for real in (F16, BF16):
        noise = (real,) if kind in _EXPONENTIAL else extra
        rows.append((real, real) if kind is SamplingType.SINGLE_TOPK else (real, I32, real, *noise))
    check_count(NAME, descs, len(rows[0]))
    check_dtypes(NAME, descs, rows)
    for index in range(len(descs)):
        check_rank(NAME, descs, index, 2)
    probs = descs[0]
    batch, vocabulary = probs.shape
    if kind is SamplingType.SINGLE_TOPK:
        check_shape(NAME, descs, 1, (batch, 1), (1, 1))
        _topk(params, vocabulary)
    else:
        check_shape(NAME, descs, 1, (batch, 1))
        check_shape(NAME, descs, 2, (batch, 1))
    if kind in _EXPONENTIAL:
        check_shape(NAME, descs, 3, probs.shape)
    elif extra:
        check_shape(NAME, descs, 3, (batch, 1))
    outputs = (replace(probs, (batch, 1), I32), replace(probs, (batch, 1)))
    if kind not in _LOGPROBS:
        return outputs
    return (*outputs, replace(probs, (batch, _logprobs_size(params, vocabulary)), F32))


def _cumulated(values: Tensor) -> Tensor:
    """Prefix sums accumulated in float32 and kept in the dtype of the values, as float32."""
    return values.float().cumsum(-1).to(values.dtype).float()


def _selected(cumulated: Tensor, topp: Tensor) -> Tensor:
    """Last index whose sum is below top-p, at least 0: ``[B, 1]``."""
    return ((cumulated < topp).sum(-1, keepdim=True) - 1).clamp(min=0)


def _threshold(cumulated: Tensor, topp: Tensor, random: Tensor, selected: Tensor) -> Tensor:
    """The sum at the selected index, or at the end of an earlier block, times the random number.

    The block is the first whose last sum reaches ``topp * random``.
    """
    length = cumulated.shape[1]
    blocks = -(-length // _BLOCK)
    ends = (torch.arange(1, blocks + 1) * _BLOCK - 1).clamp(max=length - 1)
    reached = cumulated[:, ends] >= topp * random
    first = torch.where(reached.any(-1), reached.int().argmax(-1), blocks - 1).unsqueeze(-1)
    place = torch.minimum((first + 1) * _BLOCK - 1, selected)
    return cumulated.gather(1, place) * random


def _masked_by_topk(ordered: Tensor, topk: Tensor) -> tuple[Tensor, Tensor]:
    """Values below the one at index ``topk`` set to zero, and where they are.

    The index is taken as it is, so that topk + 1 values survive; past the end nothing is masked.
    """
    index = topk.to(torch.int64)
    length = ordered.shape[1]
    bound = ordered.gather(1, index.clamp(0, length - 1)).masked_fill(index >= length, 0)
    hidden = ordered < bound
    return ordered.masked_fill(hidden, 0), hidden


def _row_random(kind: SamplingType, params: Params, batch: int) -> Tensor:
    """Random numbers ``[B, 1]``.

    One stream of ``randSeed`` for SINGLE_TOPK, and for BATCH_MULTINOMIAL with one seed in the list;
    else one seed per row, 0 for rows past the list.
    """
    if kind is SamplingType.SINGLE_TOPK:
        return uniform([int_param(NAME, params, "randSeed", 0)], batch).reshape(-1, 1)
    seeds = list(ints_param(NAME, params, "randSeeds"))
    if len(seeds) == 1:
        return uniform(seeds, batch).reshape(-1, 1)
    return uniform((seeds + [0] * batch)[:batch], 1)


def _log_probabilities(ordered: Tensor, cumulated: Tensor, selected: Tensor, size: int) -> Tensor:
    """Logarithms of the largest values over the selected sum; -9999 past the selected index."""
    kept = torch.log(ordered[:, :size].float() / cumulated.gather(1, selected))
    return kept.masked_fill(torch.arange(size) > selected, _LOG_HIDDEN)


def _accepts(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params) -> bool:
    """Whether draws that are not the golden ones are as good but for rounding.

    The probability must be that of the index, and the random number fall within the sums before
    and after the values that equal it, give or take the rounding of a sum. With exponential noise
    the ratio must be the largest but for rounding. Logarithms must be close to the golden ones.
    """
    probs, index = tensor_at(NAME, inputs, 0), outputs[0].to(torch.int64)
    shaped = index.shape == outputs[1].shape == (len(probs), 1)
    if not shaped or bool(((index < 0) | (index >= probs.shape[1])).any()):
        return False
    value = probs.gather(1, index)
    if not torch.equal(value, outputs[1]):
        return False
    kind = _type(params)
    golden = compute(inputs, params, GOLDEN).outputs
    for found, wanted in zip(outputs[2:], golden[2:], strict=True):
        if found.shape != wanted.shape or not torch.allclose(
            found, wanted, rtol=_ROUNDING, atol=_ROUNDING
        ):
            return False
    if kind in _EXPONENTIAL:
        noise = tensor_at(NAME, inputs, 3).float()
        best = golden[1].float() / noise.gather(1, golden[0].to(torch.int64))
        return bool((value.float() / noise.gather(1, index) >= best * (1 - _ROUNDING)).all())
    ordered, cumulated, bound = _drawn(kind, inputs, params)
    greater = (ordered > value).sum(-1, keepdim=True)
    equal = (ordered >= value).sum(-1, keepdim=True)
    if bool((equal == greater).any()):
        return False
    lower = cumulated.gather(1, (greater - 1).clamp(min=0)).masked_fill(greater == 0, 0.0)
    upper = cumulated.gather(1, equal - 1)
    upper = upper.masked_fill(equal == cumulated.shape[1], float("inf"))
    return bool(((lower - _ROUNDING <= bound) & (bound <= upper + _ROUNDING)).all())


def _drawn(
    kind: SamplingType, inputs: Sequence[Tensor | None], params: Params
) -> tuple[Tensor, Tensor, Tensor]:
    """Kept probabilities in descending order, their sums, and the sum to reach, per row."""
    probs = tensor_at(NAME, inputs, 0)
    ordered = torch.sort(probs, dim=-1, descending=True, stable=True).values
    if kind is SamplingType.SINGLE_TOPK:
        ordered = ordered[:, : _topk(params, probs.shape[1])]
        topp = tensor_at(NAME, inputs, 1).float().reshape(-1, 1)
    else:
        ordered, _ = _masked_by_topk(ordered, tensor_at(NAME, inputs, 1))
        topp = tensor_at(NAME, inputs, 2).float()
    if kind is SamplingType.MULTINOMIAL_LOGPROBS:
        random = tensor_at(NAME, inputs, 3).float()
    else:
        random = _row_random(kind, params, len(probs))
    cumulated = _cumulated(ordered)
    return ordered, cumulated, _threshold(cumulated, topp, random, _selected(cumulated, topp))


@golden_op(NAME, infer_shape=infer_shape, accepts=_accepts)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Draw one token per row among the top-k values, within the probability top-p.

    Inputs: probabilities ``[B, V]``; SINGLE_TOPK top-p; else top-k ``[B, 1]``, top-p ``[B, 1]``,
    then exponential noise ``[B, V]`` or the random numbers ``[B, 1]``. Random numbers of the first
    two types are those of glibc for the given seeds. Sums are kept in the dtype of the
    probabilities, so ties and boundaries fall as on the device.
    """
    kind = _type(params)
    probs = tensor_at(NAME, inputs, 0)
    ordered, order = torch.sort(probs, dim=-1, descending=True, stable=True)
    if kind is SamplingType.SINGLE_TOPK:
        ordered = ordered[:, : _topk(params, probs.shape[1])]
        topp = tensor_at(NAME, inputs, 1).float().reshape(-1, 1)
        cumulated = _cumulated(ordered)
        random = _row_random(kind, params, len(probs))
        bound = _threshold(cumulated, topp, random, _selected(cumulated, topp))
        picked = (cumulated <= bound).sum(-1, keepdim=True)
        return Result(_outputs(ordered, order, picked))
    values, hidden = _masked_by_topk(ordered, tensor_at(NAME, inputs, 1))
    topp = tensor_at(NAME, inputs, 2).float()
    cumulated = _cumulated(values)
    if kind in _EXPONENTIAL:
        beyond = cumulated > topp
        noise = tensor_at(NAME, inputs, 3)
        ratio = values.masked_fill(beyond, 0).to(noise.dtype) / noise
        picked = torch.sort(ratio, dim=-1, descending=True, stable=True).indices[:, :1]
        dropped = hidden | beyond
        dropped[:, 0] = False
        selected = (~dropped).sum(-1, keepdim=True) - 1
    else:
        if kind is SamplingType.MULTINOMIAL_LOGPROBS:
            random = tensor_at(NAME, inputs, 3).float()
        else:
            random = _row_random(kind, params, len(probs))
        selected = _selected(cumulated, topp)
        bound = _threshold(cumulated, topp, random, selected)
        picked = (cumulated < bound).sum(-1, keepdim=True)
    outputs = _outputs(ordered, order, picked)
    if kind not in _LOGPROBS:
        return Result(outputs)
    size = _logprobs_size(params, probs.shape[1])
    return Result((*outputs, _log_probabilities(ordered, cumulated, selected, size)))


def _outputs(ordered: Tensor, order: Tensor, picked: Tensor) -> tuple[Tensor, Tensor]:
    """Token numbers and their probabilities for places in the descending order."""
    place = picked.clamp(max=ordered.shape[1] - 1)
    return order.gather(1, place).to(torch.int32), ordered.gather(1, place)
