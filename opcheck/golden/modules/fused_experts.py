"""The experts of a layer of vLLM, routed and computed in one module.

The module gets tokens and the logits of its router. Which experts are taken follows from the
logits; rows whose choice some rounding could change are not judged. The weights lie as the kernel
of the engine wants them: how is known for those of CPUs and of Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.modules.experts import added_up
from ait_llm.opcheck.golden.modules.table import Compute, Given, module

Layout = Callable[[Tensor], Tensor]
Array = NDArray[np.float64]
_HELD = "routed_experts"
_INPUTS = (("0", "1"), ("0", "router_logits"), ("hidden_states", "router_logits"))
_ROWS = 16  # that the packed weights of CPUs keep together
_NEAR = 2.0**-18  # relative: scores that a kernel may take either of
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "SILU": functional.silu,
    "GELU": functional.gelu,
    "GELU_TANH": partial(functional.gelu, approximate="tanh"),
}
_ROUTERS = ("CPURouter", "FusedTopKRouter", "GroupedTopKRouter")
_BIAS, _MAP = "e_score_correction_bias", "_expert_map"
# What else may be done; each is None or False where it is not.
_UNSAID = (
    "gate",
    "shared_expert_gate",
    "routed_input_transform",
    "routed_output_transform",
    "routed_experts.custom_routing_function",
    "routed_experts.apply_router_weight_on_input",
    "routed_experts.swiglu_limit",
    "routed_experts.quant_config",
    "moe_config.is_lora_enabled",
    "moe_config.has_hash_routing",
    "moe_config.moe_parallel_config.enable_eplb",
)
_ALONE = ("dp_size", "pcp_size", "sp_size")  # ways to share out tokens
_SHARED = ("tp_size", "ep_size")  # ways to share out weights, after which results are added up


def _plain(weight: Tensor) -> Tensor:
    return weight


def _in_rows(weight: Tensor) -> Tensor:
    """``[experts, rows / 16, columns, 16]`` of the kernel with vectors, as ``[rows, columns]``."""
    blocks = weight.reshape(weight.shape[0], -1, weight.shape[2], _ROWS)
    return blocks.transpose(2, 3).reshape(weight.shape)


def _in_pairs(weight: Tensor) -> Tensor:
    """``[experts, rows / 16, columns / 2, 16, 2]`` of the kernel with tiles."""
    blocks = weight.reshape(weight.shape[0], -1, weight.shape[2] // 2, _ROWS, 2)
    return blocks.transpose(2, 3).reshape(weight.shape)


# Where the weights may lie by the class of the kernel, after what vLLM has it prepare. Kernels of a
# vendor that take the place of those of CPUs leave them as they are.
_LAYOUTS: Mapping[str, tuple[Layout, ...]] = {
    "TritonExperts": (_plain,),
    "BatchedTritonExperts": (_plain,),
    "CPUUnquantizedExperts": (_in_rows, _plain),
    "X86CPUUnquantizedExperts": (_in_pairs, _plain),
}


@dataclass(frozen=True, slots=True)
class FusedExperts:
    """``sum of share(expert) * (down(act(gate) * up))`` over the experts of each token.

    Attributes:
        names: of the tokens and of the logits.
        count: experts of a token.
        score: ``softmax`` or ``sigmoid``.
        groups: experts come in so many groups of neighbours, of which so many may be taken from;
            (1, 1) where they come in none.
        to_one: shares are divided by their sum.
        activation: of the gates.
        factors: of the shares, and of the result.
        layouts: where the weights may lie.
        in_own_type: scores may have been rounded to the type of the logits.
    """

    names: tuple[str, str]
    count: int
    score: str
    groups: tuple[int, int]
    to_one: bool
    activation: Callable[[Tensor], Tensor]
    factors: tuple[float, float]
    layouts: tuple[Layout, ...]
    in_own_type: bool
    roundings: ClassVar[int] = 0

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        x, logits = (tensors[name] for name in self.names)
        taken, _ = self._taken(tensors)
        # Where a rank holds some of the experts, those of others have no number.
        numbers = taken if _MAP not in tensors else tensors[_MAP][taken]
        found = added_up(x, numbers, self._shares(logits, taken), partial(self._one, tensors))
        return found if self.factors[1] == 1.0 else found * self.factors[1]

    def unclear(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Rows that may take other experts, ``[tokens, 1]``."""
        return self._taken(tensors)[1]

    def others(self) -> Sequence[Compute]:
        """With weights that lie in another way."""
        return [replace(self, layouts=(each,)) for each in self.layouts[1:]]

    def _shares(self, logits: Tensor, taken: Tensor) -> Tensor:
        if self.score == "softmax" and self.groups == (1, 1):
            own = logits.gather(-1, taken)
            if self.to_one:
                return own.softmax(-1).float()
            return (own - logits.logsumexp(-1, keepdim=True)).exp().float()
        wide = logits.float()
        scores = wide.sigmoid() if self.score == "sigmoid" else wide.softmax(-1)
        shares = scores.gather(-1, taken)
        if self.to_one:
            shares = shares / shares.sum(-1, keepdim=True)
        return shares if self.factors[0] == 1.0 else shares * self.factors[0]

    def _one(self, tensors: Mapping[str, Tensor], number: int, rows: Tensor) -> Tensor:
        first, second = (
            self.layouts[0](tensors[f"{name}_weight"])[number] for name in ("w13", "w2")
        )
        first_bias, second_bias = (
            None if bias is None else bias[number]
            for bias in (tensors.get("w13_bias"), tensors.get("w2_bias"))
        )
        gate, up = functional.linear(rows, first, first_bias).chunk(2, dim=-1)
        return functional.linear(self.activation(gate) * up, second, second_bias)

    def _taken(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Numbers of the experts of each token, and for which tokens they are not sure."""
        logits, bias = tensors[self.names[1]], tensors.get(_BIAS)
        scores, near = as_array(logits), _NEAR
        if self.groups != (1, 1) or bias is not None or self.score == "sigmoid":
            near = max(near, torch.finfo(logits.dtype).eps) if self.in_own_type else near
            if self.score == "sigmoid":
                scores = 1 / (1 + np.exp(-scores))
            else:
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                scores /= scores.sum(-1, keepdims=True)
        near *= np.maximum(np.abs(scores).max(-1, keepdims=True), 1.0)
        if bias is not None:
            scores = scores + as_array(bias)
        count, most = self.groups
        unsure = ~np.isfinite(scores).all(-1, keepdims=True)
        if count > most:
            of_groups = np.sort(scores.reshape(len(scores), count, -1), axis=-1)
            of_groups = of_groups[..., -1] if bias is None else of_groups[..., -2:].sum(-1)
            chosen, open_ = highest(of_groups, most, near)
            unsure |= open_
            closed = np.ones(of_groups.shape, dtype=bool)
            np.put_along_axis(closed, chosen, values=False, axis=-1)
            scores = np.where(closed.repeat(scores.shape[-1] // count, -1), -np.inf, scores)
        taken, open_ = highest(scores, self.count, near)
        return torch.from_numpy(taken.copy()), torch.from_numpy(unsure | open_)


def as_array(tensor: Tensor) -> Array:
    """Values outside of what watches operators: which experts are taken is no arithmetic."""
    found: Array = tensor.detach().to(torch.float64).numpy()
    return found


def highest(scores: Array, count: int, near: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Places of the highest of each row, and whether others are as high within ``near``."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    if count == scores.shape[-1]:
        return order, np.zeros((len(scores), 1), dtype=bool)
    last, next_ = (
        np.take_along_axis(scores, order[:, place : place + 1], -1) for place in (count - 1, count)
    )
    return order[:, :count], ~(last > next_ + near)


@module("MoERunner", whole=True)
def _fused_experts(given: Given) -> Compute | None:
    """Unquantised experts of one rank, or a rank's share where no sum over ranks follows.

    Source: ``moe_runner.py``, ``cpu_router.py`` and ``fused_topk_router.py`` of vLLM 0.32.
    """
    known, at = given.definition, f"{_HELD}."
    kernel = str(known.get(f"{at}quant_method.experts_cls"))
    activation = _ACTIVATIONS.get(str(known.get(f"{at}activation")))
    first, second = (given.weights.get(f"{name}_weight", ()) for name in ("w13", "w2"))
    count, factor = given.number(f"{at}top_k"), given.number("routed_scaling_factor")
    scale, groups = given.number(f"{at}routed_scaling_factor"), _groups(given)
    score, to_one = known.get(f"{at}scoring_func"), known.get(f"{at}renormalize")
    names = next((each for each in _INPUTS if set(each) == set(given.inputs)), None)
    if (
        activation is None
        or kernel not in _LAYOUTS
        or known.get(f"{at}quant_method.class") != "UnquantizedFusedMoEMethod"
        or dict(given.members) != {_HELD: "RoutedExperts"}
        or known.get("router") not in _ROUTERS
        or names is None
        or count is None
        or factor is None
        or scale is None
        or groups is None
        or score not in ("softmax", "sigmoid")
        or type(to_one) is not bool
        or any(known.get(name, name) not in (None, False) for name in _UNSAID)
        or not _is_own(given)
        or not given.has(["w13_weight", "w2_weight"], ["w13_bias", "w2_bias", _BIAS, _MAP])
        or (_BIAS in given.weights) is (known.get(at + _BIAS, _BIAS) is None)
        or (groups == (1, 1) and score == "softmax" and (scale != 1.0 or _BIAS in given.weights))
        or len(first) != 3
        or second != (first[0], first[2], first[1] // 2)
        or first[0] != known.get(f"{at}local_num_experts")
        or [shape[-1] for shape in given.outputs] != [first[2]]
        or (kernel.endswith("CPUUnquantizedExperts") and (first[1] % 32 or first[2] % 16))
    ):
        return None
    factors = float(scale), float(factor)
    return FusedExperts(
        names,
        int(count),
        str(score),
        groups,
        to_one,
        activation,
        factors,
        _LAYOUTS[kernel],
        known["router"] != "CPURouter",
    )


def why_unknown(given: Given) -> str:
    """Why the experts of a layer are not computed again, as the end of a sentence about several."""
    if given.type != "MoERunner":
        return ""
    return "have experts of which the capture does not tell enough"


def _groups(given: Given) -> tuple[int, int] | None:
    """Groups of experts and how many of them may be taken from; None if that is not known."""
    known = given.definition
    grouped = known.get(f"{_HELD}.use_grouped_topk")
    if grouped is False:
        return (1, 1)
    count, most = (given.number(f"{_HELD}.{name}") for name in ("num_expert_group", "topk_group"))
    every = given.number(f"{_HELD}.global_num_experts")
    if grouped is not True or not count or not most or not every or every % count:
        return None
    return int(count), int(most)


def _is_own(given: Given) -> bool:
    """True if what the module returns follows from what this rank holds."""
    known, at = given.definition, "moe_config"
    sizes = {name: known.get(f"{at}.moe_parallel_config.{name}") for name in (*_ALONE, *_SHARED)}
    if any(type(size) is not int for size in sizes.values()):
        return False
    if any(sizes[name] != 1 for name in _ALONE):
        return False
    every = known.get(f"{_HELD}.global_num_experts") == known.get(f"{_HELD}.local_num_experts")
    if every is (_MAP in given.weights):
        return False
    return all(sizes[name] == 1 for name in _SHARED) or (
        known.get(f"{at}.skip_final_all_reduce") is True and "w2_bias" not in given.weights
    )
