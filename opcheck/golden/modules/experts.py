"""Experts of one layer in one module, with joined weights: ``[experts, out, in]``.

Each token goes through the experts that were taken for it, and the results are added up by their
shares, in the type of the token. Experts without tokens are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.modules.activations import element
from ait_llm.opcheck.golden.modules.table import Compute, Given, module

_JOINED = (
    "DeepseekV2Experts",
    "DeepseekV3Experts",
    "DeepseekV32Experts",
    "Dots1Experts",
    "Ernie4_5_MoeExperts",
    "ExaoneMoeExperts",
    "FlexOlmoExperts",
    "Gemma4TextExperts",
    "Glm4MoeExperts",
    "Glm4MoeLiteExperts",
    "Glm4vMoeTextExperts",
    "GlmMoeDsaExperts",
    "GraniteMoeExperts",
    "GraniteMoeHybridExperts",
    "GraniteMoeSharedExperts",
    "HunYuanMoEV1Experts",
    "JambaExperts",
    "KimiLinearExperts",
    "Lfm2MoeExperts",
    "MiMoV2FlashExperts",
    "MiniMaxExperts",
    "MiniMaxM2Experts",
    "MixtralExperts",
    "OlmoeExperts",
    "PhimoeExperts",
    "Qwen2MoeExperts",
    "Qwen3MoeExperts",
    "Qwen3NextExperts",
    "Qwen3OmniMoeTalkerTextExperts",
    "Qwen3OmniMoeThinkerTextExperts",
    "Qwen3VLMoeTextExperts",
    "Qwen3_5MoeExperts",
    "SolarOpenExperts",
)
_NAMES = {
    "0": "x",
    "hidden_states": "x",
    "1": "taken",
    "top_k_index": "taken",
    "router_indices": "taken",
    "2": "shares",
    "top_k_weights": "shares",
    "routing_weights": "shares",
}
One = Callable[[Mapping[str, Tensor], int, Tensor], Tensor]
"""What an expert makes of its rows: parameters, its number, rows."""


@module(*_JOINED, weights=True, whole=True)
def _joined(given: Given) -> Compute | None:
    """``down(act(gate) * up)``, with gate and up in one product, by the module ``act_fn``."""
    activation = element(given.members.get("act_fn", ""))
    first, second = (given.weights.get(f"{name}_proj", ()) for name in ("gate_up", "down"))
    if (
        activation is None
        or len(given.members) != 1
        or not given.has(["gate_up_proj", "down_proj"])
        or len(first) != 3
        or second != (first[0], first[2], first[1] // 2)
    ):
        return None

    def one(tensors: Mapping[str, Tensor], number: int, rows: Tensor) -> Tensor:
        both = functional.linear(rows, tensors["gate_up_proj"][number])
        gate, up = both.chunk(2, dim=-1)
        return functional.linear(activation(gate) * up, tensors["down_proj"][number])

    return _of_all(given, one, first[0])


@module("GptOssExperts", weights=True, whole=True)
def _of_gpt_oss(given: Given) -> Compute | None:
    """Gate and up in turns, both held below ``limit``; weights lie ``[experts, in, out]``."""
    alpha, limit = given.number("alpha"), given.number("limit")
    first = given.weights.get("gate_up_proj", ())
    names = ["gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"]
    if (
        alpha is None
        or limit is None
        or given.members
        or not given.has(names)
        or len(first) != 3
        or given.weights["down_proj"] != (first[0], first[2] // 2, first[1])
    ):
        return None

    def one(tensors: Mapping[str, Tensor], number: int, rows: Tensor) -> Tensor:
        both = rows @ tensors["gate_up_proj"][number] + tensors["gate_up_proj_bias"][number]
        gate, up = both[..., ::2].clamp(max=limit), both[..., 1::2].clamp(-limit, limit)
        made = (up + 1) * (gate * torch.sigmoid(gate * alpha))
        return made @ tensors["down_proj"][number] + tensors["down_proj_bias"][number]

    return _of_all(given, one, first[0])


def _of_all(given: Given, one: One, experts: int) -> Compute | None:
    known = {_NAMES[name]: name for name in given.inputs if name in _NAMES}
    if len(known) != 3 or len(given.inputs) != 3:
        return None

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        x, taken, shares = (tensors[known[what]] for what in ("x", "taken", "shares"))
        legal = taken.masked_fill(taken >= experts, -1)  # what stands for no expert
        return added_up(x, legal, shares, partial(one, tensors))

    return compute


def added_up(
    x: Tensor, taken: Tensor, shares: Tensor, one: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """What the experts of each token make of it, by their shares.

    Args:
        x: tokens, ``[..., hidden]``.
        taken: numbers of experts, ``[tokens, taken]``; negative ones stand for none.
        shares: of them.
        one: what an expert makes of its rows: its number, rows.
    """
    shape, x = x.shape, x.reshape(-1, x.shape[-1])
    found = torch.zeros_like(x)
    numbers = taken.to(torch.int64).numpy()
    for number in sorted(set(numbers[numbers >= 0].tolist())):
        places = (numbers == number).nonzero()
        rows, places_in_row = (torch.from_numpy(place.copy()) for place in places)
        made = one(number, x[rows]) * shares[rows, places_in_row, None]
        found.index_add_(0, rows, made.to(found.dtype))
    return found.reshape(shape)
