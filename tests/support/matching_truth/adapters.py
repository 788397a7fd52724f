"""Programs whose weights were changed after training: LoRA beside them or merged, and int8.

A merge is done in the type of the run, so that in float64 both programs are the same to the last
digits. What int8 loses is in the weights; in the truth the other program has the rounded ones too.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import nn

RANK, SCALE = 4, 2.0
TARGETS = ("q_proj", "v_proj", "down_proj")


class LoraLinear(nn.Module):
    """A linear layer and a correction of low rank beside it; modules are called as in peft."""

    def __init__(self, base: nn.Linear, seed: int) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, base.out_features, bias=False)
        self.scaling = SCALE
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in (self.lora_A.weight, self.lora_B.weight):
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.copy_((drawn * 0.15).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling

    def merged(self) -> nn.Linear:
        """One layer that computes the same."""
        with torch.no_grad():
            change = self.lora_B.weight @ self.lora_A.weight * self.scaling
            self.base_layer.weight += change
        return self.base_layer


def with_lora(model: nn.Module) -> nn.Module:
    """Put a correction beside some of the layers."""
    for seed, (name, module) in enumerate(list(model.named_modules())):
        if isinstance(module, nn.Linear) and name.endswith(TARGETS):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, LoraLinear(module, seed))
    return model


class OneModule(nn.Linear):
    """A linear layer that is its own base, as in loralib: matrices beside its weight."""

    def __init__(self, base: nn.Linear, down: torch.Tensor, up: torch.Tensor) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None)
        self.weight, self.bias = base.weight, base.bias
        self.lora_A, self.lora_B = nn.Parameter(down), nn.Parameter(up)
        self.scaling, self.merged = SCALE, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.lora_A.T @ self.lora_B.T * self.scaling


class Unscaled(OneModule):
    """One that does not say how it scales."""

    def __init__(self, base: nn.Linear, down: torch.Tensor, up: torch.Tensor) -> None:
        super().__init__(base, down, up)
        del self.scaling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Linear.forward(self, x) + x @ self.lora_A.T @ self.lora_B.T * SCALE


class ByRank(nn.Module):
    """As in torchtune: the matrices are layers in lower case, and scaled by alpha over the rank."""

    def __init__(self, base: nn.Linear, down: torch.Tensor, up: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self.lora_a = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_b = nn.Linear(RANK, base.out_features, bias=False)
        self.lora_a.weight, self.lora_b.weight = nn.Parameter(down), nn.Parameter(up)
        self.rank, self.alpha, self.merged, self.disabled = RANK, RANK * SCALE, False, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = nn.functional.linear(x, self.weight, self.bias)
        return made + self.alpha / self.rank * self.lora_b(self.lora_a(x))


class Around(nn.Module):
    """As in litgpt: a layer of its own, and matrices beside it."""

    def __init__(self, base: nn.Linear, down: torch.Tensor, up: torch.Tensor) -> None:
        super().__init__()
        self.linear = base
        self.lora_A, self.lora_B = nn.Parameter(down), nn.Parameter(up)
        self.r, self.lora_alpha, self.scaling, self.merged = RANK, RANK * SCALE, SCALE, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + x @ self.lora_A.T @ self.lora_B.T * self.scaling


def written_out(model: nn.Module, form: type[nn.Module]) -> nn.Module:
    """A model of :func:`with_lora` with another class of the same layers."""
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLinear):
            parent, _, last = name.rpartition(".")
            halves = module.lora_A.weight.detach(), module.lora_B.weight.detach()
            setattr(model.get_submodule(parent), last, form(module.base_layer, *halves))
    return model


def merge(model: nn.Module, is_exact: bool) -> nn.Module:
    """Add each correction to the weight that it stands beside."""
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLinear):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, module.merged())
    return model


def has_peft() -> bool:
    """True where peft can be imported."""
    return importlib.util.find_spec("peft") is not None


def with_peft(model: nn.Module) -> nn.Module:
    """The same by peft, whose second matrix begins at zero and is drawn here."""
    import peft

    settings = peft.LoraConfig(r=RANK, lora_alpha=RANK * SCALE, target_modules=list(TARGETS))
    found: nn.Module = peft.get_peft_model(model, settings)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            if "lora_" in name:
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.copy_((drawn * 0.15).bfloat16())
    return found


def merge_peft(model: nn.Module, is_exact: bool) -> nn.Module:
    """Merge and take peft's wrappers away."""
    return model.merge_and_unload()  # type: ignore[no-any-return,operator]


def has_quanto() -> bool:
    """True where optimum-quanto can be imported."""
    return importlib.util.find_spec("optimum") is not None


def with_biases(model: nn.Module) -> nn.Module:
    """The model with biases that are no zeros."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                drawn = torch.randn(module.bias.shape, generator=generator, dtype=torch.float32)
                module.bias.copy_((drawn * 0.15).bfloat16())
    return model


def int8(model: nn.Module, is_exact: bool) -> nn.Module:
    """Weights in int8 with a scale for each row."""
    from optimum import quanto

    quanto.quantize(model, weights=quanto.qint8)
    quanto.freeze(model)
    return model


def as_int8(model: nn.Module, is_exact: bool) -> nn.Module:
    """In the truth, the weights that int8 stands for; else the weights as they were."""
    if not is_exact:
        return model
    from copy import deepcopy

    rounded = int8(deepcopy(model), is_exact)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(rounded.get_submodule(name).weight.dequantize())
    return model
