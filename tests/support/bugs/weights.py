"""Programs with other weights than they should have."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import nn

from bugs.model import Injected, Nature, Surgery, kind

Change = Callable[[torch.Tensor, Surgery], torch.Tensor | None]


def _weight(
    name: str, pattern: str, *, graded: bool = False, large: float = 0.05
) -> Callable[[Change], Change]:
    """Register a change of one weight whose name matches a pattern."""
    wanted = re.compile(pattern)

    def register(change: Change) -> Change:
        def inject(at: Surgery) -> Injected | None:
            found = [each for each, _ in at.model.named_parameters() if wanted.search(each)]
            at.rng.shuffle(found)
            for each in found:
                old = at.model.get_parameter(each)
                new = change(old.detach().clone(), at)
                if new is not None and not torch.equal(new, old):
                    return replaced(at.model, each, new.to(old.dtype))
            return None

        kind(name, Nature.DEFINITION, graded=graded, large=large)(inject)
        return change

    return register


def replaced(model: nn.Module, name: str, new: torch.Tensor) -> Injected:
    """Give a model another weight; all modules that share it get the new one."""
    parameter = model.get_parameter(name)
    old = parameter.detach().clone()
    owners = tuple(
        path
        for path, module in model.named_modules(remove_duplicate=False)
        if any(each is parameter for each in module.parameters(recurse=False))
    )
    with torch.no_grad():
        parameter.copy_(new)
    attribute = name.rpartition(".")[2]
    return Injected(owners, attribute=attribute, right=old, wrong=parameter.detach().clone())


_LINEAR = r"(proj|fc\d?|dense\w*|query|key|value|c_attn|c_fc|attn|wi\w*|wo|\.[qkvo])\.weight$"
_HEADS = r"(q_proj|query|\.q)\.weight$"


@_weight("changed weight", r"weight$|_proj$", graded=True, large=0.02)
def _changed(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    return old.float() * (1 + at.strength)


@_weight("noisy weight", r"weight$|_proj$", graded=True, large=0.05)
def _noisy(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    generator = torch.Generator().manual_seed(at.rng.randrange(1 << 30))
    return old.float() * (1 + at.strength * torch.randn(old.shape, generator=generator))


@_weight("one bad element of a weight", r"weight$|_proj$", graded=True, large=0.5)
def _element(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    flat = old.float().flatten()
    flat[at.rng.randrange(len(flat))] += at.strength * float(flat.norm())
    return flat.view(old.shape)


@_weight("NaN in a weight", _LINEAR)
def _nan(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    flat = old.flatten()
    flat[at.rng.randrange(len(flat))] = torch.nan
    return flat.view(old.shape)


@_weight("weight transposed", _LINEAR)
def _transposed(old: torch.Tensor, at: Surgery) -> torch.Tensor | None:
    return old.t().clone() if old.ndim == 2 and old.shape[0] == old.shape[1] else None


@_weight("weight rows as columns", _LINEAR)
def _reshaped(old: torch.Tensor, at: Surgery) -> torch.Tensor | None:
    """Read in the other order of dims."""
    return old.t().reshape(old.shape) if old.ndim == 2 else None


@_weight("heads swapped", _HEADS)
def _heads(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    first, second, *rest = old.chunk(4, 0)
    return torch.cat([second, first, *rest], 0)


@_weight("bias dropped", r"bias$")
def _bias(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    return torch.zeros_like(old)


@_weight("wrong quantisation scale", _LINEAR)
def _quantised(old: torch.Tensor, at: Surgery) -> torch.Tensor | None:
    """Each row in int8, dequantised with the scale of the row before."""
    if old.ndim != 2:
        return None
    scale = old.float().abs().amax(1, keepdim=True) / 127
    return (old.float() / scale).round() * scale.roll(1, 0)


@_weight("weight rounded to int8", _LINEAR)
def _int8(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    scale = old.float().abs().amax() / 127
    return (old.float() / scale).round() * scale


@_weight("wrong shard", _LINEAR)
def _shard(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    """The last quarter of the rows is that of another rank."""
    rows = max(1, len(old) // 4)
    return torch.cat([old[:-rows], old[:rows]])


@_weight("shard off by one row", _LINEAR)
def _shifted(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    return old.roll(1, 0)


@_weight("weights of an expert dropped", r"experts\.(down_proj|gate_up_proj)$")
def _expert(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    new = old.clone()
    new[at.rng.randrange(len(new))] = 0
    return new


@_weight("gate and up swapped", r"gate_up_proj(\.weight)?$")
def _joined(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    dim = old.ndim - 2
    first, second = old.chunk(2, dim)
    return torch.cat([second, first], dim)


@_weight("norm weight of ones", r"(norm\w*|ln_\w+|LayerNorm)\.weight$")
def _ones(old: torch.Tensor, at: Surgery) -> torch.Tensor:
    return torch.ones_like(old)


@kind("stale weight", Nature.DEFINITION)
def _stale(at: Surgery) -> Injected | None:
    """That of the same place in another layer."""
    weights = dict(at.model.named_parameters())
    pairs = [
        (name, other)
        for name in weights
        if re.search(r"\.0\.", name)
        for other in [re.sub(r"\.0\.", ".1.", name, count=1)]
        if other in weights and weights[other].shape == weights[name].shape
    ]
    if not pairs:
        return None
    name, other = at.rng.choice(pairs)
    return replaced(at.model, other, weights[name].detach())


@kind("tied embedding mismatched", Nature.DEFINITION)
def _tied(at: Surgery) -> Injected | None:
    """The head has the weights of the embedding, which it should not."""
    weights = dict(at.model.named_parameters())
    head = weights.get("lm_head.weight")
    same = [
        each
        for name, each in weights.items()
        if head is not None and "lm_head" not in name and each.shape == head.shape
    ]
    return replaced(at.model, "lm_head.weight", same[0].detach()) if same else None


@kind("gate and up swapped, apart", Nature.DEFINITION)
def _gate_and_up(at: Surgery) -> Injected | None:
    weights = dict(at.model.named_parameters())
    gates = [name for name in weights if re.search(r"gate_proj\.weight$", name)]
    if not gates:
        return None
    gate = at.rng.choice(gates)
    up = gate.replace("gate_proj", "up_proj")
    old = weights[gate].detach().clone()
    first = replaced(at.model, gate, weights[up].detach().clone())
    second = replaced(at.model, up, old)
    owners = (*first.owners, *second.owners)
    return Injected(owners, attribute="weight", right=first.right, wrong=first.wrong)
