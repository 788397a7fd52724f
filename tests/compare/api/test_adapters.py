"""Tables of a program with adapters of low rank beside one that they were merged into."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

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


class Model(nn.Module):
    """What else reads and multiplies beside the adapters has their shapes."""

    def __init__(self, scalings: dict[str, float]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm = nn.LayerNorm(WIDTH)
        self.first: nn.Module = Adapted(nn.Linear(WIDTH, WIDTH, bias=False), scalings)
        self.other = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        first, other = self.first(normed) * 0.5, self.other(normed) * 1.5
        found: Tensor = self.second(functional.silu(first) + other.tanh() * 2.0) + x
        return found


def drive(model: nn.Module) -> None:
    model(torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1)))


def both(folder: Path, scalings: dict[str, float], factor: float = 1.0) -> tuple[Path, Path]:
    beside, whole = Model(scalings).eval(), Model(scalings).eval()
    assert isinstance(whole.first, Adapted)
    with torch.no_grad():
        whole.first = whole.first.merged(factor)
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
