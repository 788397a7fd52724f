"""Weights that operators read, where a program was captured operator by operator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ait_llm import DumpConfig, compare, register_hook


def captured(folder: Path, changed: str = "") -> Path:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(32, 48, bias=False), nn.LayerNorm(48), nn.Linear(48, 32))
    if changed:
        weight = net.get_parameter(changed).data
        weight[:4] = weight[:4] * 1.05 + 0.01
    config = DumpConfig(str(folder), operators=True, modules=False, weights=True)
    with torch.no_grad(), register_hook(net, config):
        net(torch.randn(9, 32, generator=torch.Generator().manual_seed(1)))
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("weight", ["0.weight", "1.weight", "2.bias"])
def test_another_weight_of_an_operator_is_named(golden: Path, tmp_path: Path, weight: str) -> None:
    found = compare(golden, captured(tmp_path / "mine", weight))
    assert found.exit_code() == 1
    (origin,) = found.origins
    module, _, name = weight.partition(".")
    assert origin.evidence.startswith(f"`{name}` of `root.{module}` is not that of golden")
    assert origin.kind == "other weight"
    assert origin.op.startswith(f"root.{module}.aten.")


def test_weights_of_operators_are_compared_and_agree(golden: Path, tmp_path: Path) -> None:
    found = compare(golden, captured(tmp_path / "mine"))
    weights = [each.mine for each in found.comparisons if each.mine and each.mine.role == "weight"]
    assert sorted(f"{each.op}.{each.name}" for each in weights) == [
        "root.0.weight",
        "root.1.bias",
        "root.1.weight",
        "root.2.bias",
        "root.2.weight",
    ]
    assert (found.exit_code(), found.origins) == (0, ())
