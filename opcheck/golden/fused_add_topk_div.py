"""FusedAddTopkDiv: routing weights of the best experts within the best groups."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.group_topk import best_groups
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
    bool_param,
    float_param,
    int_param,
    refused,
    tensor_at,
)

NAME = "FusedAddTopkDivOperation"
_SIGMOID = 8
# Values that differ by less are in no certain order: kernels compute sigmoids in float32.
_TIE = 2.0**-18


def _sizes(params: Params, experts: int) -> tuple[int, int, int, int]:
    """Groups, groups to keep, values per group score, experts to pick."""
    groups, keep, top, picked = (
        int_param(NAME, params, key, 1) for key in ("groupNum", "groupTopk", "n", "k")
    )
    if int_param(NAME, params, "activationType", _SIGMOID) != _SIGMOID:
        raise refused(NAME, "parameter activationType takes 8, sigmoid")
    if groups < 1 or experts % groups or not 0 < keep <= groups or not 0 < picked <= experts:
        raise refused(
            NAME,
            f"groupNum {groups}, groupTopk {keep} and k {picked} do not fit {experts} experts",
        )
    if not 1 <= top <= experts // groups:
        raise refused(NAME, f"parameter n is {top}; it takes 1 to {experts // groups}")
    return groups, keep, top, picked


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float32 weights and int32 experts, ``[T, k]``."""
    mapped = bool_param(NAME, params, "enableExpertMapping", False)
    check_count(NAME, descs, 4 if mapped else 2)
    extra = (I32, I32) if mapped else ()
    check_dtypes(NAME, descs, [(x, x, *extra) for x in (F16, BF16, F32)])
    check_rank(NAME, descs, 0, 2)
    tokens, experts = descs[0].shape
    groups, _, _, picked = _sizes(params, experts)
    most = 32 * groups if groups == 8 else 32
    if experts > most:
        raise refused(NAME, f"there are {experts} experts; with {groups} groups it takes {most}")
    check_shape(NAME, descs, 1, (experts,))
    if mapped:
        check_shape(NAME, descs, 2, (experts,))
        check_rank(NAME, descs, 3, 2)
        check_shape(NAME, descs, 3, (experts, min(descs[3].shape[1], 128)))
    shape = (tokens, picked)
    return replace(descs[0], shape, F32), replace(descs[0], shape, I32)


def _competing(x: Tensor, bias: Tensor, params: Params) -> Tensor:
    """``sigmoid(x) + bias`` of wide x, zero in all but the best groups."""
    groups, keep, top, _ = _sizes(params, x.shape[1])
    grouped = (torch.sigmoid(x) + bias).reshape(len(x), groups, x.shape[1] // groups)
    scores = grouped.topk(top, dim=-1).values.sum(dim=-1)
    return grouped.masked_fill(~best_groups(scores, keep).unsqueeze(-1), 0).reshape(x.shape)


def _weighed(weights: Tensor, picked: Tensor, params: Params) -> Tensor:
    y = weights.gather(1, picked)
    if bool_param(NAME, params, "isNorm", True):
        y = y / y.sum(dim=-1, keepdim=True) * float_param(NAME, params, "scale", 1.0)
    return y


def _accepts(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params) -> bool:
    """Whether other experts were picked only where their values are equal but for rounding.

    Mapped experts are not looked at.
    """
    x, bias = tensor_at(NAME, inputs, 0).double(), tensor_at(NAME, inputs, 1).double()
    weights, picked = outputs[0].double(), outputs[1].long()
    count = _sizes(params, x.shape[1])[3]
    if bool_param(NAME, params, "enableExpertMapping", False) or picked.shape != (len(x), count):
        return False
    if bool(((picked < 0) | (picked >= x.shape[1])).any()):
        return False
    if bool((picked.sort(dim=-1).values.diff(dim=-1) == 0).any()):
        return False
    competing = _competing(x, bias, params)
    best = competing.sort(dim=-1, descending=True).values[:, :count]
    close = torch.allclose(competing.gather(1, picked), best, rtol=_TIE, atol=_TIE)
    wanted = _weighed(torch.sigmoid(x), picked, params)
    return close and torch.allclose(weights, wanted, rtol=_TIE, atol=_TIE)


@golden_op(NAME, infer_shape=infer_shape, accepts=_accepts)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Pick experts by ``sigmoid(x) + bias`` and weigh them by ``sigmoid(x)``.

    Only groups with the best sums of their n largest values compete; entries of others count as
    zero. With ``isNorm`` weights are divided by their sum and multiplied by ``scale``. Inputs: x
    ``[T, E]``; bias ``[E]``; copies per expert ``[E]`` and their numbers ``[E, most copies]``, of
    which token t takes copy ``t mod copies``.
    """
    x, bias = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    count = _sizes(params, x.shape[1])[3]
    wide = arithmetic.widen(x)
    competing = _competing(wide, arithmetic.widen(bias), params)
    picked = torch.sort(competing, dim=-1, descending=True, stable=True).indices[:, :count]
    y = _weighed(torch.sigmoid(wide), picked, params)
    if bool_param(NAME, params, "enableExpertMapping", False):
        copies, table = tensor_at(NAME, inputs, 2).long(), tensor_at(NAME, inputs, 3).long()
        copy = torch.arange(len(x)).unsqueeze(1) % copies[picked].clamp(min=1)
        picked = table[picked, copy]
    return Result((arithmetic.round(y, torch.float32), picked.to(torch.int32)))
