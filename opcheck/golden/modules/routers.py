"""Routers of ``transformers``: logits of the experts of each token, which are taken, their shares.

A choice is no arithmetic: scores that lie close may be taken either way, and everything behind it
follows. So logits are computed from the input, and what was taken and with which share is judged by
the logits that the router itself made: the experts must be those with the highest scores, in any
order, within what rounding does to scores, and the shares those of the recorded experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

LOGITS, TAKEN = "output_0", "output_2"
Scores = Callable[[Tensor], Tensor]
Shares = Callable[[Tensor, Tensor], Tensor]
Array = NDArray[np.float64]
_NEAR = 2.0**-18  # relative: scores in float32 that some roundings may swap
_TINY = 1e-20  # keeps a sum of shares from being zero

_SOFTMAX = (
    "FlexOlmoTopKRouter",
    "MellumTopKRouter",
    "OlmoeTopKRouter",
    "Qwen2MoeTopKRouter",
    "Qwen3MoeTopKRouter",
    "Qwen3NextTopKRouter",
    "Qwen3OmniMoeTalkerTextTopKRouter",
    "Qwen3OmniMoeThinkerTextTopKRouter",
)
_SOFTMAX_TO_ONE = (
    "MiniMaxTopKRouter",
    "MixtralTopKRouter",
    "Qwen3OmniMoeTextTopKRouter",
    "Qwen3VLMoeTextTopKRouter",
    "Qwen3_5MoeTopKRouter",
)
_TAKEN_THEN_SOFTMAX = (
    "GptOssTopKRouter",
    "GraniteMoeHybridTopKRouter",
    "GraniteMoeSharedTopKRouter",
    "GraniteMoeTopKRouter",
)
_SIGMOID_IN_GROUPS = (
    "DeepseekV32TopkRouter",
    "DeepseekV3TopkRouter",
    "Dots1TopkRouter",
    "ExaoneMoeTopkRouter",
    "Glm4MoeLiteTopkRouter",
    "Glm4MoeTopkRouter",
    "Glm4vMoeTextTopkRouter",
    "GlmMoeDsaTopkRouter",
    "KimiLinearTopkRouter",
    "MiMoV2FlashTopkRouter",
    "NemotronHTopkRouter",
    "SolarOpenTopkRouter",
)


@module(*_SOFTMAX, *_SOFTMAX_TO_ONE, weights=True, results=True)
def _softmax_router(given: Given) -> Compute | None:
    """The highest of all probabilities, divided by their sum where ``norm_topk_prob``."""
    to_one: object = True
    if given.type in _SOFTMAX:
        to_one = given.definition.get("norm_topk_prob")
    if type(to_one) is not bool or not _is_router(given, ["weight"]):
        return None

    def compute(tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        x, weight, logits = only(tensors, given), tensors["weight"], tensors[LOGITS]
        made = functional.linear(x.reshape(-1, x.shape[-1]), weight)
        scores = logits.float()
        if _are_probabilities(logits):  # as releases before 5.1 hand them out
            made = made.float().softmax(-1)
        else:
            scores = scores.softmax(-1)
        taken = _taken(tensors, _as_array(logits))
        shares = scores.gather(-1, taken)
        if to_one:
            shares = shares / shares.sum(-1, keepdim=True)
        return made, shares.to(tensors["output_1"].dtype), taken

    return compute


@module(*_TAKEN_THEN_SOFTMAX, weights=True, results=True)
def _router_of_taken(given: Given) -> Compute | None:
    """The highest logits; shares are the softmax of these alone."""
    names = ["weight", "bias"] if given.type == "GptOssTopKRouter" else ["weight"]
    if not _is_router(given, names):
        return None

    def compute(tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        x, logits = only(tensors, given), tensors[LOGITS]
        made = functional.linear(
            x.reshape(-1, x.shape[-1]), tensors["weight"], tensors.get("bias")
        ).to(logits.dtype)
        taken = _taken(tensors, _as_array(logits))
        shares = logits.gather(-1, taken).softmax(-1)
        return made, shares.to(tensors["output_1"].dtype), taken

    return compute


@module(*_SIGMOID_IN_GROUPS, weights=True, results=True)
def _router_in_groups(given: Given) -> Compute | None:
    """DeepSeek-V3's: sigmoids in float32, taken by what a bias makes of them, within some groups.

    A group counts by its two highest. Shares are of the sigmoids without the bias.
    """
    to_one = given.definition.get("norm_topk_prob")
    factor = given.number("routed_scaling_factor")
    groups, of_them = given.number("num_group"), given.number("topk_group")
    if (
        type(to_one) is not bool
        or factor is None
        or groups is None
        or of_them is None
        or not _is_router(given, ["weight", "e_score_correction_bias"])
        or given.weights["weight"][0] % int(groups)
        or given.weights["weight"][0] < 2 * groups
    ):
        return None
    count, most = int(groups), int(of_them)

    def compute(tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        x, logits = only(tensors, given), tensors[LOGITS]
        flat, weight = x.reshape(-1, x.shape[-1]), tensors["weight"]
        made = functional.linear(flat.float(), weight.float())
        scores = logits.sigmoid()
        bias = _as_array(tensors["e_score_correction_bias"])
        taken = _taken(tensors, 1 / (1 + np.exp(-_as_array(logits))) + bias, count, most)
        shares = scores.gather(-1, taken)
        if to_one:
            shares = shares / (shares.sum(-1, keepdim=True) + _TINY)
        return made, (shares * factor).to(tensors["output_1"].dtype), taken

    return compute


def _is_router(given: Given, weights: list[str]) -> bool:
    """True for logits of all experts, and shares and numbers of some, in rows for each token."""
    if len(given.outputs) != 3 or not given.takes(weights):
        return False
    rows = given.outputs[0][:-1]
    experts, taken = given.weights["weight"][0], given.number("top_k")
    return given.outputs == ((*rows, experts), (*rows, taken), (*rows, taken)) and len(rows) == 1


def _as_array(tensor: Tensor) -> Array:
    """Values outside of what watches operators: which experts are taken is no arithmetic."""
    found: Array = tensor.detach().to(torch.float64).numpy()
    return found


def _are_probabilities(logits: Tensor) -> bool:
    values = _as_array(logits)
    return bool((values >= 0).all() and (abs(values.sum(-1) - 1) < _NEAR).all())


def _taken(tensors: Mapping[str, Tensor], scores: Array, groups: int = 1, most: int = 1) -> Tensor:
    """The recorded choice of each row if it is legal, else the right one.

    Args:
        tensors: has the choice, ``[rows, taken]``.
        scores: ``[rows, experts]``.
        groups: experts come in so many groups of neighbours.
        most: of which so many may be taken from.
    """
    recorded: NDArray[np.int64] = tensors[TAKEN].to(torch.int64).numpy().copy()
    count = recorded.shape[-1]
    for row, (chosen, own) in enumerate(zip(recorded, scores, strict=True)):
        near = _NEAR * max(float(np.abs(own).max(initial=0)), 1.0)
        sure, open_ = _groups(own, groups, most, near)
        valid = len(set(chosen.tolist())) == count and chosen.min() >= 0 and chosen.max() < own.size
        if valid and open_[chosen].all():
            left = np.delete(own, chosen)[np.delete(sure, chosen)]
            if own[chosen].min() >= left.max(initial=-np.inf) - near:
                continue
        order = np.argsort(np.where(sure, own, -np.inf), kind="stable")[::-1]
        recorded[row] = order[:count]
    return torch.from_numpy(recorded)


def _groups(
    scores: Array, groups: int, most: int, near: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which experts of a row are in groups that must, and that may be taken from."""
    everything = np.ones(scores.size, dtype=bool)
    if most >= groups:
        return everything, everything
    size = scores.size // groups
    both = np.sort(scores.reshape(groups, size), axis=-1)[:, -2:].sum(-1)
    ordered = np.sort(both)[::-1]
    sure = both > ordered[most] + near
    may = both >= ordered[most - 1] - near
    if sure.sum() < most and (may == sure).all():
        sure = may
    return np.repeat(sure, size), np.repeat(may, size)
