"""Gating: routed slots ordered by expert."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    MOVES,
    Arithmetic,
    Params,
    Refusal,
    Result,
    UnverifiableError,
    golden_op,
)
from ait_llm.opcheck.golden.shapes import (
    I32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    int_param,
    ints_param,
    optional_at,
    refused,
    tensor_at,
)

NAME = "GatingOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Token index ``[N]``, cumulated counts, original index ``[N]``, and with experts a count."""
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, [(I32, I32)])
    check_rank(NAME, descs, 0, 1)
    check_shape(NAME, descs, 1, descs[0].shape)
    per_token = int_param(NAME, params, "topkExpertNum", 1)
    if per_token < 1 or descs[0].shape[0] % per_token:
        raise refused(NAME, f"{descs[0].shape[0]} slots do not divide by topkExpertNum {per_token}")
    experts = ints_param(NAME, params, "deviceExpert")
    length = len(experts) or int_param(NAME, params, "cumSumNum", 0) or 1
    dtype = I64 if bool_param(NAME, params, "cumSumInt64", False) else I32
    outputs = (descs[0], replace(descs[0], (length,), dtype), descs[0])
    return (*outputs, replace(descs[0], (1,))) if experts else outputs


def _recover(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """Dumps carry no parameters of Gating.

    The number of experts is the length of the cumulated counts. The slots per token are the
    smallest number by which the original index divides to the token index, both from the output;
    a wrong output gives none. Which experts a device has cannot be told.
    """
    token, sums, original = (optional_at(outputs, index) for index in range(3))
    if len(outputs) != 3 or token is None or sums is None or original is None:
        return params
    found = {"cumSumNum": len(sums), "cumSumInt64": sums.dtype == torch.int64, "deviceExpert": []}
    if len(sums) == 1 and int(sums[0]) == 0:
        found |= {"cumSumNum": 0, "topkExpertNum": 1}
        return {**found, **params}
    largest, last = int(original.max()), int(token.max())
    # original // k = token for the largest index leaves few candidates for k.
    first, stop = largest // (last + 1) + 1, largest // last if last > 0 else largest + 1
    for count in range(first, stop + 1):
        if len(original) % count == 0 and torch.equal(original // count, token):
            found["topkExpertNum"] = count
            break
    return {**found, **params}


@golden_op(NAME, infer_shape=infer_shape, recover=_recover, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Stable order p of the slots by expert: ``original = index[p]``, ``token = original // k``.

    Counts per expert are cumulated. With ``deviceExpert``, only slots of these experts are kept,
    packed to the left, and a last output is their number. ``cumSumNum`` 0 leaves counts and token
    index zero. Inputs: expert of each slot ``[N]``; index of each slot ``[N]``.

    Raises:
        UnverifiableError: the parameters are not known.
    """
    for key in ("topkExpertNum", "cumSumNum"):
        if key not in params:
            raise UnverifiableError(f"{NAME}: dumps carry no parameters, and {key} is needed")
    topk, index = (tensor_at(NAME, inputs, i).reshape(-1) for i in (0, 1))
    per_token = int_param(NAME, params, "topkExpertNum", 1)
    number = int_param(NAME, params, "cumSumNum", 0)
    experts = torch.tensor(sorted(ints_param(NAME, params, "deviceExpert")), dtype=torch.int64)
    dtype = torch.int64 if bool_param(NAME, params, "cumSumInt64", False) else torch.int32
    if number and len(topk) and not 0 <= int(topk.min()) <= int(topk.max()) < number:
        raise refused(NAME, f"an expert is outside the {number} experts", Refusal.PARAM)
    order = torch.argsort(topk, stable=True)
    original = index[order]
    token = original // per_token if number else torch.zeros_like(original)
    if not number:
        sums = torch.zeros(max(1, len(experts)), dtype=dtype)
        counts = torch.bincount(topk) if len(topk) else torch.zeros(0, dtype=torch.int64)
    else:
        counts = torch.bincount(topk, minlength=number)
        sums = (counts[experts] if len(experts) else counts).cumsum(0).to(dtype)
    if not len(experts):
        return Result((token, sums, original))
    kept = torch.isin(topk[order].long(), experts)
    valid = int(kept.sum())
    packed = []
    for values in (token, original):
        target = torch.zeros_like(values)
        target[:valid] = values[kept]
        packed.append(target)
    return Result((packed[0], sums, packed[1], torch.tensor([valid], dtype=torch.int32)))
