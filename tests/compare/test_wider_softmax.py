"""Attention of 16 bits with a softmax of float32, against a fused one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict


class Attention(nn.Module):
    """Four heads of 16, by a fused kernel or operator by operator.

    Args:
        dim: of the softmax; None is the fused kernel.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.qkv = nn.Linear(64, 192, bias=False)
        self.proj = nn.Linear(64, 64, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0, 0.25)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.dim is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) * 0.25
            later = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, torch.finfo(scores.dtype).min)
            shares = functional.softmax(scores, self.dim, dtype=torch.float32).to(q.dtype)
            mixed = torch.matmul(shares, v)
        found: Tensor = self.proj(mixed.transpose(1, 2).flatten(-2))
        return found


def compared(folder: Path, dim: int, dtype: torch.dtype) -> Report:
    x = torch.randn(1, 7, 64, generator=torch.Generator().manual_seed(4)).to(dtype)
    for name, model in (("golden", Attention()), ("mine", Attention(dim))):
        config = DumpConfig(dump_path=folder / name, operators=True, weights=True)
        with torch.no_grad(), register_hook(model.to(dtype).eval(), config):
            model(x)
    return compare(folder / "golden", folder / "mine")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_softmax_over_the_wrong_axis_is_not_taken_for_rounding(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    report = compared(tmp_path, -2, dtype)
    (origin,) = report.origins
    failed = [each.mine.op for each in report.comparisons if each.verdict is Verdict.FAIL]
    assert "root.aten.bmm.default" in failed
    assert "root.aten._softmax.default" in (origin.op, *origin.candidates)
    assert "root.proj.aten.mm.default" not in (origin.op, *origin.candidates)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_same_attention_without_a_fault_agrees(dtype: torch.dtype, tmp_path: Path) -> None:
    report = compared(tmp_path, -1, dtype)
    assert report.origins == ()
    assert all(each.verdict is not Verdict.FAIL for each in report.comparisons)
