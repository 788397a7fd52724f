"""Correct kernels of torch that round on the way to 16 bits, or on the edge of a whole number.

All of these were accused once: they are torch's own CPU kernels on torch's own samples.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

HALVES = [torch.bfloat16, torch.float16]


class Halves(nn.Module):
    """Numbers of two halves."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).to(torch.complex32).real


class Kernels(nn.Module):
    """Attention in one kernel, sums along other rows, roots, interpolation, whole quotients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.up = nn.ConvTranspose2d(8, 8, (3, 2), stride=(3, 2), padding=(0, 1), dilation=4)

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        kept = [self.attention(x, x, x, need_weights=False)[0]]
        kept += [F.softmax(x, 0), F.log_softmax(x, 1), F.log_softmax(x, -1), torch.logit(x, 0.2)]
        kept += [
            torch.rsqrt(x.abs() + 0.1),
            torch.add(x, x, alpha=-3.125),
            torch.renorm(x, 2, 1, 0.5),
        ]
        kept += [
            torch.div(x * 40, x.flip(0), rounding_mode="trunc"),
            x.as_strided((4, 3), (2, 1), 5),
        ]
        kept += [
            self.up(image),
            F.interpolate(image[:, :, None], scale_factor=1.7, mode="trilinear"),
        ]
        kept += [F.grid_sample(image, image[:, :2].permute(0, 2, 3, 1), align_corners=False)]
        kept += [torch.linalg.cross(x[..., :3], x[..., 3:6]), torch.logsumexp(x, 1)]
        return torch.cat([one.reshape(-1) for one in kept]).isfinite().sum()


def capture(folder: Path, dtype: torch.dtype) -> Path:
    model = Kernels().to(dtype).eval()
    x, image = torch.randn(6, 12, 16) * 5, torch.randn(2, 8, 9, 9) * 3
    with (
        torch.no_grad(),
        register_hook(model, DumpConfig(dump_path=folder, operators=True, weights=True)),
    ):
        model(x.to(dtype), image.to(dtype))
    return folder / "ait_dump"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_kernels_of_torch_that_round_on_the_way_are_right(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    report = opcheck(capture(tmp_path, dtype))
    assert [(item.op, item.reason) for item in report.items if item.verdict is Verdict.FAIL] == []
    checked = {item.op.split(".aten.")[-1].partition(".")[0] for item in judged(report)}
    assert {"_log_softmax", "rsqrt", "convolution", "renorm", "div", "logsumexp"} <= checked


def test_an_operator_that_few_use_is_wrong_where_no_rounding_explains_it(tmp_path: Path) -> None:
    dump = capture(tmp_path, torch.bfloat16)
    (path,) = dump.rglob("*aten.renorm*/*output*.pth")
    values = torch.load(path, weights_only=True)
    path.unlink()  # files of equal values are links to one
    torch.save(values * 1.5, path)
    failed = [item.op for item in opcheck(dump).items if item.verdict is Verdict.FAIL]
    assert len(failed) == 1
    assert "renorm" in failed[0]


def judged(report: OpcheckReport) -> list[Checked]:
    return [item for item in report.items if item.verdict in (Verdict.PASS, Verdict.FAIL)]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_conversion_to_two_halves_is_right(tmp_path: Path) -> None:
    model = Halves()
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=tmp_path, operators=True)):
        model(torch.randn(3, 4))
    report = opcheck(tmp_path / "ait_dump")
    assert [item.reason for item in report.items if item.verdict is Verdict.FAIL] == []
    assert any("_to_copy" in item.op for item in judged(report))


def test_attention_of_elements_that_are_not_finite_is_not_judged(tmp_path: Path) -> None:
    """One kernel makes zeros of a row of scores without a number, another one NaN."""

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    x = torch.randn(1, 2, 6, 8)
    x[0, 1, 4, 7] = torch.inf
    with (
        torch.no_grad(),
        register_hook(model := Attention(), DumpConfig(dump_path=tmp_path, operators=True)),
    ):
        model(x)
    found = [one for one in opcheck(tmp_path, jobs=1).items if "attention" in one.op]
    assert [one.verdict for one in found] == [Verdict.SKIPPED]
    assert "not finite" in found[0].reason
