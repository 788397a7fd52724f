"""The layer of experts of GPT-OSS with weights in MXFP4, as one kernel computes it.

The kernel gets the logits of the router, takes the highest itself, and multiplies with the weights
as real numbers; inputs stay as they are. Neither the router nor the experts are called as modules.

Source: ``integrations/mxfp4.py`` of transformers 5 and ``gpt-oss-triton-kernels``: shares, what is
between the two products, and each expert's result are stored in the type of the tokens; bias,
activation and the sum over experts are float32's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.modules.fused_experts import as_array, highest
from ait_llm.opcheck.golden.modules.table import Compute, Given, module

_LOGITS = "output_1"
_NEAR = 2.0**-18  # relative: logits that a kernel may take either of
_WEIGHTS = ("weight", "bias", "gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")


@dataclass(frozen=True, slots=True)
class Mxfp4Experts:
    """``sum of share(expert) * (down((up + 1) * gate * sigmoid(alpha * gate)))``, and the logits.

    Attributes:
        name: of the tokens, ``[..., hidden]``.
        count: experts of a token.
        alpha: of the activation.
        limit: what gate and up are held within.
    """

    name: str
    count: int
    alpha: float
    limit: float
    roundings: ClassVar[int] = 1

    def __call__(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, logits = tensors[self.name], tensors[_LOGITS]
        rows = x.reshape(-1, x.shape[-1])
        made = functional.linear(rows, tensors["weight"], tensors["bias"])
        taken, _ = self._taken(logits)
        shares = logits.gather(-1, taken).float().softmax(-1).to(logits.dtype)
        total = torch.zeros_like(rows).float()
        for number in sorted(set(taken.reshape(-1).tolist())):
            at, place = (torch.from_numpy(each) for each in np.nonzero(taken.numpy() == number))
            found = self._one(tensors, number, rows[at]) * shares[at, place, None]
            total.index_add_(0, at, found.to(rows.dtype).float())
        return total.to(x.dtype).reshape(x.shape), made

    def unclear(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Tokens that may take other experts, ``[..., 1]``."""
        unsure = self._taken(tensors[_LOGITS])[1]
        return unsure.reshape(*tensors[self.name].shape[:-1], 1)

    def others(self) -> Sequence[Compute]:
        """None."""
        return ()

    def _one(self, tensors: Mapping[str, Tensor], number: int, rows: Tensor) -> Tensor:
        """In float32, with what is between the products in the type of the tokens."""
        first, second = (tensors[f"{name}_proj"][number].float() for name in ("gate_up", "down"))
        both = rows.float() @ first + tensors["gate_up_proj_bias"][number]
        gate = both[..., ::2].clamp(max=self.limit)
        up = both[..., 1::2].clamp(-self.limit, self.limit)
        made = (up + 1) * (gate * torch.sigmoid(gate * self.alpha))
        return made.to(rows.dtype).float() @ second + tensors["down_proj_bias"][number]

    def _taken(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        scores = as_array(logits)
        taken, unsure = highest(scores, self.count, _NEAR * np.abs(scores).max(-1, keepdims=True))
        unsure |= ~np.isfinite(scores).all(-1, keepdims=True)
        return torch.from_numpy(taken.copy()), torch.from_numpy(unsure)


@module("Mxfp4GptOssMLP", weights=True, results=True, whole=True)
def _of_gpt_oss(given: Given) -> Compute | None:
    """Both results of the layer, if it holds all the experts that its router knows."""
    alpha, limit = (given.number(f"experts.{name}") for name in ("alpha", "limit"))
    count, first = given.number("router.top_k"), given.weights.get("gate_up_proj", ())
    if (
        alpha is None
        or limit is None
        or count is None
        or len(given.inputs) != 1
        or len(given.outputs) != 2
        or not given.has(_WEIGHTS)
        or not given.dequantised.issuperset({"gate_up_proj", "down_proj"})
        or len(first) != 3
        or given.weights["down_proj"] != (first[0], first[2] // 2, first[1])
        or given.weights["weight"] != first[:2]
        or given.outputs[1][-1] != first[0]
    ):
        return None
    return Mxfp4Experts(given.inputs[0], int(count), alpha, limit)
