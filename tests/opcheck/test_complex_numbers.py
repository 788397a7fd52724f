"""Operators on complex numbers: both parts of each are judged."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.pipeline import opcheck


class Rotated(nn.Module):
    """Rotary positions as complex factors, as Llama's first code had them, and a spectrum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.q, self.o = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(self.q(x).view(*x.shape[:-1], 8, 2))
        turns = torch.polar(torch.ones(8), torch.arange(8.0) * 0.3)
        turned = torch.view_as_real(pairs * turns).flatten(-2)
        scores = (pairs @ pairs.mH).abs()
        spectrum = torch.fft.fft(turned).real + (
            pairs.sum(-1).exp() / (pairs[..., 0] + 3)
        ).imag.unsqueeze(-1)
        return self.o(turned + spectrum) + scores.mean()


class Longer(TorchDispatchMode):
    """One part of what a product gives is larger by a share."""

    def __init__(self, part: str, share: float) -> None:
        super().__init__()
        self._part, self._share = part, share

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if str(func) != "aten.mul.Tensor" or not made.is_complex():
            return made
        real, imag = made.real, made.imag
        longer = 1 + self._share
        return torch.complex(
            *((real * longer, imag) if self._part == "real" else (real, imag * longer))
        )


def _captured(folder: Path, part: str = "", share: float = 0.0) -> Path:
    model = Rotated().eval()
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    fault = Longer(part, share) if part else nullcontext()
    with torch.no_grad(), fault, register_hook(model, config):
        model(x)
    return folder


def test_each_operator_on_complex_numbers_is_right(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    report = opcheck(_captured(tmp_path))
    found = [item for item in report.items if item.dtype == "complex64"]
    assert len(found) >= 8
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    assert [str(each.message) for each in recwarn if "imaginary" in str(each.message)] == []


@pytest.mark.parametrize("part", ["real", "imaginary"])
def test_a_product_with_one_wrong_part_fails_and_is_the_origin(tmp_path: Path, part: str) -> None:
    mine = _captured(tmp_path / "mine", part, 1e-4)
    report = opcheck(mine)
    assert {item.op for item in report.items if item.verdict is Verdict.FAIL} == {
        "root.aten.mul.Tensor@1"
    }
    found = compare(_captured(tmp_path / "golden"), mine, jobs=1)
    (origin,) = found.origins
    assert (found.exit_code(), origin.op, origin.certain) == (1, "root.aten.mul.Tensor", True)
    assert "from its own inputs recomputed" in origin.evidence


def test_a_shape_or_type_of_complex_numbers_is_told_as_that(tmp_path: Path) -> None:
    report = opcheck(_captured(tmp_path))
    (polar,) = (item for item in report.items if item.op_type == "aten.polar.default")
    assert (polar.dtype, polar.shape) == ("complex64", (8,))
