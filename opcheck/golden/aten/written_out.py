"""Operators that no CPU runs in float64, written out: fused attention, grouped and quantised
products, and the layers of a recurrent network.

Each is a function of the operator's arguments by name, in the type of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.opcheck.golden.aten.block_scales import product_of_scaled, result_of_scaled
from ait_llm.opcheck.golden.aten.calls import Call
from ait_llm.opcheck.golden.aten.kinds import base_name, is_attention
from ait_llm.opcheck.golden.aten.quantised_products import (
    int4_weight_product,
    int8_weight_product,
    scaled_product,
)
from ait_llm.opcheck.golden.base import UnverifiableError

Definition = Callable[[Mapping[str, Any]], Tensor | tuple[Tensor, ...]]


def written_out(type_name: str) -> Definition | None:
    """The definition of an operator; None where torch's own can be run in any type."""
    return attention if is_attention(type_name) else _DEFINITIONS.get(base_name(type_name))


def arguments(func: Any, call: Call) -> dict[str, Any]:
    """The arguments of a call by name; absent ones have their defaults."""
    given = {one.name: one.default_value for one in func._schema.arguments}
    names = [one.name for one in func._schema.arguments]
    return given | dict(zip(names, call.args, strict=False)) | dict(call.kwargs)


def own_result(type_name: str, func: Any, call: Call) -> list[Tensor] | None:
    """Results without values where torch cannot infer them from what a capture holds; else None."""
    if base_name(type_name) not in _SCALED:
        return None
    return result_of_scaled(arguments(func, call))


def settled(func: Any, call: Call) -> Call:
    """The call with the numbers that depend on the type of its inputs, before they are widened.

    An epsilon that is not given is that of the type in which torch's kernels compute.
    """
    if base_name(str(func)) != "_fused_rms_norm" or arguments(func, call)["eps"] is not None:
        return call
    single = call.args[0].dtype.itemsize <= 4
    eps = torch.finfo(torch.float32 if single else torch.float64).eps
    return replace(call, args=(*call.args[:3], eps), kwargs={})


def attention(given: Mapping[str, Any]) -> Tensor:
    """``softmax(query key' scale + mask) value``; of the statistics beside it none is computed."""
    if given.get("dropout_p") or any(given.get(f"cum_seq_{one}") is not None for one in "qk"):
        raise UnverifiableError("it drops at random here, or works on packed sequences")
    query, key, value = (given.get(name) for name in ("query", "key", "value"))
    if query is None or key is None or value is None or query.dim() != 4:
        raise UnverifiableError("its query, key and value are not four-dimensional")
    with _disable_current_modes():  # no step of the operator, so no rounding of it is looked for
        is_finite = all(bool(one.isfinite().all()) for one in (query, key, value))
    if not is_finite:
        # kernels differ in what they make of a row whose scores are not finite: zero or NaN
        raise UnverifiableError("its query, key or value has elements that are not finite")
    mask = given.get("attn_mask", given.get("attn_bias"))
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (one.repeat_interleave(groups, 1) for one in (key, value))
    scale = given.get("scale")
    scores = query @ key.transpose(-2, -1)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    hidden = float("-inf")
    if given.get("is_causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, hidden)
    if mask is not None:
        is_flag = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, hidden) if is_flag else scores + mask
    weights = torch.softmax(scores, -1)
    found: Tensor = torch.nan_to_num(weights, nan=0.0) @ value  # a row that sees nothing is zero
    return found


def _grouped_product(given: Mapping[str, Any]) -> Tensor:
    """``self [rows, K] . mat2 [groups, K, N]``, where ``offs`` are the ends of the groups of rows.

    Raises:
        UnverifiableError: both are groups, or neither is.
    """
    rows: Tensor = given["self"]
    weights, ends = given["mat2"], given["offs"]
    if rows.dim() == 3 and weights.dim() == 3:
        return torch.bmm(rows, weights)
    if rows.dim() != 2 or weights.dim() != 3 or ends is None or given["bias"] is not None:
        raise UnverifiableError("only groups of rows of one matrix are defined here")
    found = rows.new_zeros(rows.shape[0], weights.shape[2])
    start = 0
    for group, end in enumerate(ends.tolist()):
        found[start:end] = rows[start:end] @ weights[group]
        start = end
    return found


def _recurrent_layer(given: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """One direction of one LSTM layer, ``input [T, B, I]``: what it shows, and its last states.

    The gates' rows are in the order of ``torch.nn.LSTM``: input, forget, cell and output.

    Raises:
        UnverifiableError: it is no LSTM, or its sequences are packed.
    """
    if given["mode"] != _LSTM or given["batch_sizes"]:
        raise UnverifiableError("only an LSTM over sequences that are not packed is defined here")
    steps: Tensor = given["input"]
    hidden, cell = given["hx_"], given["cx_"]
    from_input = steps @ given["weight0"].t()
    if given["has_biases"]:
        from_input = from_input + given["weight2"] + given["weight3"]
    found = steps.new_empty(*steps.shape[:2], given["hidden_size"])
    order = range(len(steps))
    for step in reversed(order) if given["reverse"] else order:
        gates = from_input[step] + hidden @ given["weight1"].t()
        let_in, kept, fresh, shown = gates.chunk(4, -1)
        cell = torch.sigmoid(kept) * cell + torch.sigmoid(let_in) * torch.tanh(fresh)
        hidden = torch.sigmoid(shown) * torch.tanh(cell)
        found[step] = hidden
    return found, hidden, cell


_SCALED = frozenset({"_scaled_mm", "_scaled_mm_v2"})
_LSTM = 2  # at::native's rnn modes
_DEFINITIONS: Mapping[str, Definition] = {
    "_grouped_mm": _grouped_product,
    "_scaled_mm": scaled_product,
    "_scaled_mm_v2": product_of_scaled,
    "_weight_int4pack_mm_for_cpu": int4_weight_product,
    "_weight_int8pack_mm": int8_weight_product,
    "mkldnn_rnn_layer": _recurrent_layer,
}
