"""What is shown about disagreements: whose fault they are.

Nothing is explained by its name. A fault of the vendor's is imitated on the same inputs, and only
where that gives the vendor's numbers, which ours without it does not, is the case put down to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from vendor.outcome import Side

from ait_llm.opcheck.selftest.difference import difference
from ait_llm.opcheck.selftest.recorded import Recorded

Imitate = Callable[[Recorded], Sequence[Tensor]]


@dataclass(frozen=True)
class Fault:
    """A fault of the vendor's generator.

    Attributes:
        operator: class name.
        why: what is wrong, and how it is shown.
        imitate: what the fault makes of a case.
    """

    operator: str
    why: str
    imitate: Imitate


def _no_maximum(one: Recorded) -> list[Tensor]:
    """FaUpdate: exponentials that overflow, as nothing is subtracted from them."""
    weights = one.inputs[0].float().exp()  # [sp, rows]
    shares = weights / weights.sum(0)
    return [(one.inputs[1].float() * shares.unsqueeze(-1)).sum(0)]


def _strides_twice(one: Recorded) -> list[Tensor]:
    """LayerNormWithStride: a contiguous result that is read with the strides of the input."""
    right = one.compute().outputs[0].contiguous()
    return [right.as_strided(right.shape, one.inputs[3].tolist(), 0)]


def _half_scores(one: Recorded) -> list[Tensor]:
    """SelfAttention of one sequence: scores and the mask added in float16."""
    heads, groups = one.params["headNum"], one.params["kvHeadNum"]
    query, key, value = (tensor.float() for tensor in one.inputs[:3])
    rows = len(query)
    query = query.reshape(rows, heads, -1)
    key, value = (
        each.reshape(rows, groups, -1).repeat_interleave(heads // groups, 1)
        for each in (key, value)
    )
    scores = torch.einsum("qhd,khd->hqk", query, key) * one.params["qkScale"]
    mask = one.inputs[5].transpose(1, 2).reshape(rows, rows)
    weights = (scores.half() + mask).float().softmax(-1)
    return [torch.einsum("hqk,khd->qhd", weights, value).reshape(rows, -1)]


def _half_product(one: Recorded) -> list[Tensor]:
    """RmsNormBackward: the gradient times gamma in their 16 bits, from which much is subtracted."""
    grad, x, rstd, gamma = one.inputs[0], one.inputs[1].float(), *one.inputs[2:4]
    weighted = grad * gamma
    dims = tuple(range(-gamma.dim(), 0))
    return [weighted * rstd - (weighted * rstd.pow(3) * x).mean(dims, keepdim=True) * x]


def _half_sums(one: Recorded) -> list[Tensor]:
    """IndexAdd: a sum that is rounded to 16 bits after each of its terms."""
    x, indices, updates, factor = one.inputs
    return [x.index_add(one.params.get("axis", 0), indices, updates, alpha=factor.item())]


FAULTS = (
    Fault(
        "FaUpdateOperation",
        "its exponentials overflow, as no maximum is subtracted first; without the maximum, ours "
        "gives NaN at the same elements",
        _no_maximum,
    ),
    Fault(
        "LayerNormWithStrideOperation",
        "it applies the strides of the input to its contiguous result too; ours, read so, gives "
        "its numbers",
        _strides_twice,
    ),
    Fault(
        "SelfAttentionOperation",
        "its mask is -10000 everywhere and is added in float16, whose steps there are 8; the "
        "same sum in float16 gives its numbers",
        _half_scores,
    ),
    Fault(
        "RmsNormBackwardOperation",
        "it rounds a product to float16 before something of its size is subtracted; ours, rounded "
        "so, gives its numbers",
        _half_product,
    ),
    Fault(
        "IndexAddOperation",
        "it rounds to 16 bits after each of the terms that one element gets; the same sum, rounded "
        "so, gives its numbers",
        _half_sums,
    ),
)


def explain(one: Recorded) -> tuple[Side, str]:
    """Who is to blame that ours differs from the golden of a case, and what shows it."""
    for fault in FAULTS:
        if fault.operator == one.op and _gives(one, fault.imitate):
            return Side.VENDOR, fault.why
    return Side.OURS, ""


def _gives(one: Recorded, imitate: Imitate) -> bool:
    """Whether the fault makes the vendor's numbers."""
    try:
        made = imitate(one)
    except (IndexError, KeyError, RuntimeError):
        return False  # it is a fault of other cases
    dtypes = [*(tensor.dtype for tensor in one.inputs), torch.float16]
    pairs = zip(one.golden, made, strict=False)  # its caches are no part of the difference
    return all(not difference(theirs, ours, dtypes=dtypes) for theirs, ours in pairs)
