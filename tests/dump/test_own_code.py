"""Operators that the code of a module calls itself, without those of its members."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from capture_models import calls, capture
from torch import Tensor, nn

from ait_llm import DumpConfig
from ait_llm.errors import UsageError


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, *, fails: bool = False) -> Tensor:
        if fails:
            raise ValueError("no")
        return torch.sigmoid(self.linear(torch.cos(x)))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Inner(), Inner()])
        self.scale = nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sin(x) * self.scale
        for part in self.parts:
            x = torch.exp(part(x))
        try:
            self.parts[0](x, fails=True)
        except ValueError:
            x = torch.tan(x)
        return x


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def captured(folder: Path, *modules: str, **more: object) -> list[str]:
    options = {"operators": True, "modules": False, "own_code": True, "weights": True, **more}
    dump = capture(Outer(), folder, X, module_names=list(modules), **options)
    return [name.replace(".aten", "").replace(".default", "") for name in calls(dump, 0)]


def test_members_are_left_out(tmp_path: Path) -> None:
    found = captured(tmp_path, "root")
    assert found == ["root.sin", "root.mul.Tensor", "root.exp", "root.exp@1", "root.tan"]


def test_a_member_that_is_chosen_too_is_recorded_under_its_own_name(tmp_path: Path) -> None:
    found = captured(tmp_path, "root", "root.parts.1")
    assert found == [
        "root.sin",
        "root.mul.Tensor",
        "root.exp",
        "root.parts.1.cos",
        "root.parts.1.sigmoid",
        "root.exp@1",
        "root.tan",
    ]


def test_weights_are_those_of_the_modules_themselves(tmp_path: Path) -> None:
    for folder, module in (("a", "root"), ("b", "root.parts.1.linear")):
        captured(tmp_path / folder, module)
    saved = {path.stem for path in tmp_path.rglob("weights/*.pth")}
    assert saved == {"root.scale", "root.parts.1.linear.weight", "root.parts.1.linear.bias"}


def test_it_needs_operators_of_chosen_modules() -> None:
    with pytest.raises(UsageError, match="own_code"):
        DumpConfig(operators=True, own_code=True)
    with pytest.raises(UsageError, match="own_code"):
        DumpConfig(module_names=["root"], own_code=True)
