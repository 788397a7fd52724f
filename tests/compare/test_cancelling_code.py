"""Sums in the code of a module that nearly cancel: what is left keeps the rounding of its terms."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report

_WIDTH = 64


class _Cancelling(nn.Module):
    """Two projections that are nearly each other's negative, and one of their sum.

    Args:
        factor: of the sum, in its code.
        bias: of the last projection, which may hide the sum.
    """

    def __init__(self, factor: float, bias: float) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.last = nn.Linear(_WIDTH, _WIDTH)
        self.factor = factor
        with torch.no_grad():
            self.other.weight.copy_(0.95 * self.one.weight)
            self.other.bias.copy_(0.95 * self.one.bias)
            self.last.bias.fill_(bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        left = self.one(hidden_states) - self.other(hidden_states)
        result: Tensor = self.last(self.factor * left)
        return result


class _Program(nn.Module):
    def __init__(self, factor: float, bias: float) -> None:
        super().__init__()
        self.block = _Cancelling(factor, bias)
        self.head = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, hidden_states: Tensor) -> Tensor:
        result: Tensor = self.head(self.block(hidden_states))
        return result


def _compared(
    folder: Path, *, dtype: torch.dtype = torch.bfloat16, factor: float = 1.0, bias: float = 1.0
) -> Report:
    for side, kind, each in (("golden", torch.float32, 1.0), ("mine", dtype, factor)):
        torch.manual_seed(5)
        program = _Program(each, bias).to(kind).eval()
        with torch.no_grad(), register_hook(program, DumpConfig(dump_path=folder / side)):
            program(torch.randn(1, 32, _WIDTH).to(kind))
    return compare(folder / "golden", folder / "mine", jobs=1)


def test_the_rounding_of_terms_in_their_small_sum_accuses_nobody(tmp_path: Path) -> None:
    report = _compared(tmp_path)
    assert (report.exit_code(), report.origins) == (0, ())
    [small] = [each for each in report.comparisons if "times smaller than" in each.reason]
    assert small.mine is not None
    assert (small.mine.op, small.mine.role) == ("root.block.last", "in")
    assert small.needed["relative_euclidean_distance"] > 0.032


@pytest.mark.parametrize(
    ("dtype", "factor"), [(torch.bfloat16, 3.0), (torch.bfloat16, -1.0), (torch.float32, 1.01)]
)
def test_a_wrong_factor_of_a_small_sum_is_found_although_what_reads_it_agrees(
    tmp_path: Path, dtype: torch.dtype, factor: float
) -> None:
    report = _compared(tmp_path, dtype=dtype, factor=factor, bias=1000.0)
    assert report.exit_code() == 1
    assert [origin.op for origin in report.origins] == ["root.block"]


def test_a_small_sum_that_changes_what_reads_it_is_no_rounding(tmp_path: Path) -> None:
    report = _compared(tmp_path, factor=1.3, bias=0.0)
    assert report.exit_code() == 1
    assert [origin.op for origin in report.origins] == ["root.block"]
