"""Weights into which an adapter of low rank was merged, against the adapter beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matching_truth.adapters import SCALE, LoraLinear
from torch import Tensor, nn
from torch.nn import functional

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

WIDTH = 32


class Model(nn.Module):
    """Two layers of norm, product and activation, the first with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm = nn.LayerNorm(WIDTH)
        self.first: nn.Module = LoraLinear(nn.Linear(WIDTH, WIDTH, bias=False), seed=4)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(functional.silu(self.first(self.norm(x)))) + x
        return found


def compared(folder: Path, scale: float = SCALE, *, weights: bool, swapped: bool = False) -> Report:
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        golden, mine = Model().eval(), Model().eval()
        assert isinstance(mine.first, LoraLinear)
        mine.first.scaling = scale
        mine.first = mine.first.merged()
        sides = [("mine", mine), ("golden", golden)]
        for name, model in sides:
            config = DumpConfig(str(folder / name), operators=True, weights=weights)
            with register_hook(model, config):
                model(x)
    first, second = ("mine", "golden") if swapped else ("golden", "mine")
    return compare(folder / first, folder / second, jobs=1)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_operators_of_a_merged_adapter_agree(weights: bool, swapped: bool, tmp_path: Path) -> None:
    report = compared(tmp_path, weights=weights, swapped=swapped)
    assert report.origins == ()
    assert report.verdict is Verdict.PASS


def test_an_adapter_that_was_merged_with_another_scale_is_found(tmp_path: Path) -> None:
    report = compared(tmp_path, SCALE / 2, weights=False)
    assert report.verdict is Verdict.FAIL
    assert report.origins[0].op.startswith("root.first")
