"""Every operator of a PyTorch program recomputed, where nothing fails and where little does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Report


class Net(nn.Module):
    """Products, a norm, a draw that decides nothing, fresh memory, views of parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.norm, self.second = nn.Linear(32, 48), nn.LayerNorm(48), nn.Linear(48, 32)

    def forward(self, x: Tensor) -> Tensor:
        filled = torch.empty_like(x).fill_(0.5) + 0 * torch.rand_like(x)
        return self.second(self.norm(torch.relu(self.first(x + filled))))


class Scaled(TorchDispatchMode):
    """The first product is a little too large: within every tolerance, beyond its arithmetic."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if str(func) == "aten.addmm.default" and out.shape[-1] == 48:
            out = out * (1 + 2e-5)
        return out


def captured(folder: Path, mode: TorchDispatchMode | None = None) -> Path:
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(1))
    model = Net().eval()
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    with torch.no_grad(), mode or torch.no_grad(), register_hook(model, config):
        model(x)
    return folder


def test_a_healthy_program_passes_although_some_operators_leave_nothing_to_recompute(
    tmp_path: Path,
) -> None:
    found: Report = compare(captured(tmp_path / "golden"), captured(tmp_path / "mine"), deep=True)
    assert [each.text for each in found.problems] == []
    assert found.origins == ()
    assert found.exit_code() == 0


def test_an_operator_that_is_wrong_within_the_tolerances_is_named(tmp_path: Path) -> None:
    mine = captured(tmp_path / "mine", Scaled())
    found = compare(captured(tmp_path / "golden"), mine, deep=True)
    (origin,) = found.origins
    assert origin.op == "root.first.aten.addmm.default"
    assert origin.certain
    assert "all elements are" in origin.evidence or "where rounding permits" in origin.evidence
    assert found.exit_code() == 1


@pytest.mark.parametrize("deep", [False, True])
def test_nobody_is_accused_twice(deep: bool, tmp_path: Path) -> None:
    mine = captured(tmp_path / "mine", Scaled())
    found = compare(captured(tmp_path / "golden"), mine, deep=deep)
    assert len(found.origins) <= 1


class Coarse(TorchDispatchMode):
    """One sum of two tensors is rounded to 256 steps, which the tolerance of bfloat16 permits."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if str(func) == "aten.add.Tensor" and out.dtype is torch.bfloat16:
            step = out.abs().max() / 127
            out = (out / step).round() * step
        return out


def _in_type(folder: Path, dtype: torch.dtype, mode: TorchDispatchMode | None = None) -> Path:
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    model = Net().eval().to(dtype)
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    with torch.no_grad(), mode or torch.no_grad(), register_hook(model, config):
        model(x)
    return folder


@pytest.mark.parametrize("golden", [torch.float32, torch.bfloat16])
def test_an_operator_that_rounds_too_much_is_named_without_being_asked_for(
    golden: torch.dtype, tmp_path: Path
) -> None:
    right = _in_type(tmp_path / "golden", golden)
    mine = _in_type(tmp_path / "mine", torch.bfloat16, Coarse())
    words = ["llm", "compare", "-gp", str(right), "-mp", str(mine), "-o", str(tmp_path / "report")]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 1, result.output
    said = " ".join(result.output.split())
    assert "started root.aten.add.Tensor" in said
    assert "where rounding permits" in said
    assert "this is within the tolerance of the comparisons" in said


def test_nobody_is_named_where_only_the_types_differ(tmp_path: Path) -> None:
    right = _in_type(tmp_path / "golden", torch.float32)
    mine = _in_type(tmp_path / "mine", torch.bfloat16)
    found = compare(right, mine)
    assert (found.origins, found.exit_code()) == ((), 0)
