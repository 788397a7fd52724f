"""The limits of an operator's error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ait_llm.compare.introduced_limits import excess


def test_an_error_within_one_rounding_is_within_both_limits() -> None:
    draw = np.random.default_rng(0)
    exact = torch.tensor(draw.normal(size=(64, 64)))
    found = excess(exact, exact.half().double(), torch.zeros_like(exact), torch.float16, 2**-11)
    assert found.strict < 1
    assert found.loose < 1
    assert found.error == pytest.approx(float((exact.half() - exact).norm() / exact.norm()))


def test_a_sensitive_element_may_be_further_away() -> None:
    exact = torch.ones(4, 4, dtype=torch.float64)
    mine = exact.clone()
    mine[1, 2] += 0.01
    calm = excess(exact, mine, torch.ones_like(exact), torch.float16, 2.0**-11)
    assert calm.loose > 1
    assert calm.worst == 6
    wild = excess(exact, mine, 10 * torch.ones_like(exact), torch.float16, 2.0**-11)
    assert wild.loose < 1


def test_zero_where_zero_is_right_is_no_error() -> None:
    zero = torch.zeros(3, 3, dtype=torch.float64)
    found = excess(zero, zero, zero, torch.float16, 2.0**-11)
    assert (found.strict, found.loose, found.error) == (0, 0, 0)
