"""Comparison of the two sides of a demo."""

from __future__ import annotations

import math

import torch

from ait_llm.hostatb.models.check import agree, tolerance


def test_the_worst_row_counts() -> None:
    golden = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    mine = torch.tensor([[3.0, 4.0], [3.0, 4.5]])
    result = agree(golden, mine, 0.09)
    assert math.isclose(result.relative_error, 0.1)
    assert math.isclose(result.max_error, 0.5)
    assert not result.passed


def test_equal_outputs_pass() -> None:
    golden = torch.tensor([[1.0, 2.0]])
    assert agree(golden, golden.clone(), 0.0).passed


def test_nan_never_passes() -> None:
    golden = torch.tensor([[1.0, 2.0]])
    assert not agree(golden, torch.tensor([[1.0, math.nan]]), 1e9).passed


def test_a_coarser_type_is_allowed_more() -> None:
    limits = [tolerance(t, 2, 64) for t in (torch.float32, torch.float16, torch.bfloat16)]
    assert limits == sorted(limits)
    assert limits[2] / limits[1] > 7.9  # bfloat16 has three bits fewer


def test_independent_roundings_in_a_chain_stay_within_the_tolerance() -> None:
    generator = torch.Generator().manual_seed(0)
    golden = torch.randn(4, 256, generator=generator).double()
    mine = golden.clone()
    for _ in range(2 * 11):  # two layers of eleven roundings each
        factors = 1 + torch.randn(mine.shape, generator=generator).double() * 1e-3
        mine = (mine * factors).half().double() / factors
    assert agree(golden, mine, tolerance(torch.float16, 2, 256)).passed
