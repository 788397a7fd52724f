"""Results of aten operators that are as right as golden's.

Equal values come in any order, whole numbers are those on either side of an edge, and some kernels
look a function up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.aten.kinds import base_name
from ait_llm.opcheck.golden.base import Accepts
from ait_llm.opcheck.golden.ggml_gelu import is_from_table

_ORDERED = frozenset({"topk", "sort", "kthvalue", "max", "min", "median"})
_LOOKED_UP = frozenset({"ait_ggml.gelu.default", "ait_ggml.geglu.default"})
_SORTED = "ait_ggml.argsort.default"
_MODES = {"floor": torch.floor, "trunc": torch.trunc}


def other_choices(type_name: str) -> Accepts | None:
    """What decides whether an operator may return something else than golden; None: nothing."""
    if base_name(type_name) in _ORDERED:
        return is_other_order
    if type_name == _SORTED:
        return is_sorted
    if type_name.endswith("_mode") or base_name(type_name) == "floor_divide":
        return is_next_whole
    return is_from_table if type_name in _LOOKED_UP else None


def is_other_order(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Mapping[str, Any]
) -> bool:
    """True if indices select, from the input, exactly the values that were returned.

    Equal values may come in any order.
    """
    given = inputs[0] if inputs else None
    if given is None or len(outputs) != 2 or outputs[1].dtype != torch.int64:
        return False
    values, places = outputs
    dim = next((d for d in range(given.dim()) if given.shape[d] != values.shape[d]), -1)
    for place in range(given.dim()):  # the dimension in which it was ordered
        if params.get("input_dim", params.get("input_1", params.get("input_2"))) == place:
            dim = place
    if values.dim() != given.dim() or bool((places < 0).any()):
        return False
    if bool((places >= given.shape[dim]).any()):
        return False
    return torch.equal(given.gather(dim, places), values)


def is_sorted(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Mapping[str, Any]
) -> bool:
    """True if the indices of each row are all of them, and select its values in their order."""
    given = inputs[0] if inputs else None
    if given is None or len(outputs) != 1 or outputs[0].shape != given.shape:
        return False
    places = outputs[0].to(torch.int64)
    if not torch.equal(places.sort(-1).values, torch.arange(given.shape[-1]).expand_as(places)):
        return False
    ordered = given.sort(-1, descending=bool(params.get("input_descending", False))).values
    return torch.equal(given.gather(-1, places), ordered)


def is_next_whole(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Mapping[str, Any]
) -> bool:
    """True if whole quotients are those of quotients that were rounded before."""
    given = inputs[0] if inputs else None
    mode = _MODES.get(params.get("input_rounding_mode", "floor"))
    if given is None or mode is None or len(outputs) != 1:
        return False
    by = inputs[1] if len(inputs) > 1 else params.get("input_1")
    found = outputs[0]
    if by is None or not found.dtype.is_floating_point:
        return False
    exact = given.double() / (by.double() if isinstance(by, Tensor) else by)
    slack = exact.abs() * torch.finfo(found.dtype).eps
    least, most = (mode(exact + side).to(found.dtype) for side in (-slack, slack))
    legal = (found >= least) & (found <= most) & (found == found.round())
    return bool((legal | (found.isnan() & least.isnan())).all())
