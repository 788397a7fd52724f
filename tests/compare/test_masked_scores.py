"""A softmax behind a mask, whose lowest numbers make errors of the scores look small."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

LARGE = 32.0  # what cancels in the scores, so that their error is that of much larger numbers


class Attention(nn.Module):
    """Masked weights of large scores."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.proj = nn.Linear(32, 32, bias=False)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        scores = self.proj(x) @ x.T / 4
        scores = scores * LARGE - scores * (LARGE - 1)
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return torch.softmax(scores * self.scale, -1)


def compared(folder: Path, mine: Attention, dtype: torch.dtype) -> Report:
    x = torch.randn(24, 32, generator=torch.Generator().manual_seed(4))
    for name, model, kind in (("golden", Attention(), torch.float32), ("mine", mine, dtype)):
        config = DumpConfig(dump_path=folder / name, operators=True, weights=True)
        with torch.no_grad(), register_hook(model.to(kind).eval(), config):
            model(x.to(kind))
    return compare(folder / "golden", folder / "mine")


def test_what_both_sides_compute_rightly_of_what_agrees_is_no_failure(tmp_path: Path) -> None:
    found = compared(tmp_path, Attention(), torch.bfloat16)
    assert [each for each in found.comparisons if each.verdict is Verdict.FAIL] == []
    assert found.exit_code() == 0


def test_scores_of_another_scale_are_a_failure(tmp_path: Path) -> None:
    found = compared(tmp_path, Attention(scale=0.5), torch.bfloat16)
    assert found.exit_code() == 1
