"""Tables of a program with adapters of low rank beside one that they were merged into."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matching_truth.adapters import merge, with_lora
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from tests.compare.api.test_other_programs import (
    assert_nobody_is_accused,
    captured_model,
    compared,
)

WIDTH, RANK = 32, 4


class Adapted(nn.Module):
    """A linear layer and adapters beside it, each with a scaling."""

    def __init__(self, base: nn.Linear, scalings: dict[str, float]) -> None:
        super().__init__()
        self.base_layer, self.scalings = base, scalings
        self.lora_A = nn.ModuleDict({name: nn.Linear(WIDTH, RANK, bias=False) for name in scalings})
        self.lora_B = nn.ModuleDict({name: nn.Linear(RANK, WIDTH, bias=False) for name in scalings})

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_layer(x)
        for name, scaling in self.scalings.items():
            found = found + self.lora_B[name](self.lora_A[name](x)) * scaling
        return found

    def merged(self, factor: float = 1.0) -> nn.Linear:
        whole = nn.Linear(WIDTH, WIDTH, bias=False)
        change = sum(
            factor * scaling * self.lora_B[name].weight @ self.lora_A[name].weight
            for name, scaling in self.scalings.items()
        )
        whole.weight.data = self.base_layer.weight + change
        return whole


class Layer(nn.Module):
    """Two projections of one input, the first with adapters, both turned by positions."""

    def __init__(self, scalings: dict[str, float]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first: nn.Module = Adapted(nn.Linear(WIDTH, WIDTH, bias=False), scalings)
        self.other = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])[:, None] * torch.linspace(0.1, 1, WIDTH)
        cosine, sine = places.cos(), places.sin()
        normed = self.norm(x)
        first, other = (
            each * cosine + each.roll(1, -1) * sine
            for each in (self.first(normed), self.other(normed))
        )
        found: Tensor = x + self.out(functional.silu(first) * other)
        return found


class Model(nn.Module):
    def __init__(self, scalings: dict[str, float]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(Layer(scalings) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def drive(model: nn.Module) -> None:
    model(torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1)))


def both(folder: Path, scalings: dict[str, float], factor: float = 1.0) -> tuple[Path, Path]:
    beside, whole = Model(scalings).eval(), Model(scalings).eval()
    with torch.no_grad():
        for layer in whole.layers:
            layer.first = layer.first.merged(factor)
    return (
        captured_model(folder / "beside", beside, drive),
        captured_model(folder / "merged", whole, drive),
    )


@pytest.mark.parametrize("scalings", [{"a": 2.0}, {"a": 2.0, "b": 0.5}], ids=["one", "two"])
def test_the_base_beside_adapters_is_not_the_merged_layer(
    scalings: dict[str, float], tmp_path: Path
) -> None:
    assert_nobody_is_accused(*both(tmp_path, scalings), tmp_path / "report", least=15)


def test_an_adapter_merged_with_another_scaling_is_found(tmp_path: Path) -> None:
    beside, merged = both(tmp_path, {"a": 2.0}, factor=0.5)
    outcome = compared(beside, merged, tmp_path / "report")
    assert outcome.exit_code() == 1


def llama() -> LlamaForCausalLM:
    """As many heads of keys as of queries: all projections have one shape."""
    torch.manual_seed(7)
    sizes = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2}
    config = LlamaConfig(num_attention_heads=4, num_key_value_heads=4, **sizes)
    config._attn_implementation = "eager"
    return LlamaForCausalLM(config).eval()


def read_prompt(model: nn.Module) -> None:
    model(torch.arange(5, 16)[None])


def test_calls_behind_adapters_are_not_paired_by_numbers_that_adapters_shift(
    tmp_path: Path,
) -> None:
    with torch.no_grad():
        beside, merged = with_lora(llama()), merge(with_lora(llama()), is_exact=True)
    first = captured_model(tmp_path / "beside", beside, read_prompt)
    second = captured_model(tmp_path / "merged", merged, read_prompt)
    assert_nobody_is_accused(first, second, tmp_path / "report", least=250)
