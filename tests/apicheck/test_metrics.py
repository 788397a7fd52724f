"""Errors of one output: against loops over Python floats, at the edges, and scaled."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.apicheck.metrics import Metrics, measure_floats, measure_integers
from ait_llm.judge.api_limits import limits_of

KINDS = {
    torch.float16: (torch.float32, 10, -14, 2.0**-23),
    torch.bfloat16: (torch.float32, 7, -126, 2.0**-8),
    torch.float32: (torch.float64, 23, -126, 2.0**-52),
}
values = st.floats(-1000, 1000, width=16)


def oracle(golden: torch.Tensor, mine: torch.Tensor) -> Metrics:
    """All metrics of finite outputs, element by element."""
    _, bits, least, eps = KINDS[mine.dtype]
    limits = limits_of(str(mine.dtype))
    rounded = golden.to(mine.dtype).double().tolist()
    pairs = list(zip(golden.double().tolist(), mine.double().tolist(), strict=True))
    size = len(pairs)
    errors = [abs(m - g) for g, m in pairs]
    plain = [
        0.0 if e == 0 or m == r == 0 else e / abs(g) if g else math.inf
        for (g, m), r, e in zip(pairs, rounded, errors, strict=True)
    ]
    units = [
        float(Fraction(e) / Fraction(2) ** (max(_exponent(g), least) - bits))
        for (g, _), e in zip(pairs, errors, strict=True)
    ]
    small = [e for (g, _), e in zip(pairs, errors, strict=True) if abs(g) <= limits.small]
    normal = [(g, e) for (g, _), e in zip(pairs, errors, strict=True) if abs(g) > limits.small]
    relative = [e / (abs(g) + eps) for g, e in normal]
    norms = math.hypot(*(g for g, _ in pairs)) * math.hypot(*(m for _, m in pairs))
    zeros = all(abs(r) <= 2**-52 for r in rounded), all(abs(m) <= 2**-52 for _, m in pairs)
    has_angle = size > 1 and not any(zeros)
    return Metrics(
        cosine=math.fsum(g * m for g, m in pairs) / norms if has_angle else None,
        max_absolute=max(errors),
        hundredth=sum(p < 0.01 for p in plain) / size,
        thousandth=sum(p < 0.001 for p in plain) / size,
        ten_thousandth=sum(p < 0.0001 for p in plain) / size,
        unequal=sum(r != m for r, (_, m) in zip(rounded, pairs, strict=True)) / size,
        balance=abs(sum((m > r) - (m < r) for r, (_, m) in zip(rounded, pairs, strict=True)))
        / size,
        rmse=math.sqrt(math.fsum(e * e for _, e in normal) / len(normal)) if normal else 0.0,
        small_share=sum(e > limits.small_atol for e in small) / len(small) if small else 0.0,
        max_relative=max(relative, default=0.0),
        mean_relative=math.fsum(relative) / len(relative) if relative else 0.0,
        nonfinite_share=0.0,
        relative_share=sum(r > limits.rtol for r in relative) / len(relative) if relative else 0.0,
        absolute_share=sum(e > limits.atol for e in small) / len(small) if small else 0.0,
        max_ulp=max(units),
        mean_ulp=math.fsum(units) / size,
        ulp_share=sum(u > limits.far for u in units) / size,
        is_one_zero=size > 1 and zeros[0] != zeros[1],
    )


def _exponent(value: float) -> int:
    return math.frexp(value)[1] - 1 if value else -(10**6)


def agree(found: Metrics, expected: Metrics) -> None:
    for name in Metrics.__slots__:
        number = getattr(expected, name)
        wanted = None if number is None else pytest.approx(number, rel=1e-9, abs=1e-15)
        assert getattr(found, name) == wanted, name


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(KINDS)), st.lists(st.tuples(values, values), min_size=1, max_size=9))
def test_every_metric_is_that_of_a_loop_over_the_elements(
    dtype: torch.dtype, pairs: list[tuple[float, float]]
) -> None:
    golden = torch.tensor([g for g, _ in pairs], dtype=KINDS[dtype][0])
    mine = torch.tensor([m for _, m in pairs]).to(dtype)
    agree(measure_floats(golden, mine), oracle(golden, mine))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_metrics_of_more_than_one_block_are_those_of_all_elements(dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(1)
    golden = torch.randn(140_000, generator=made, dtype=torch.float64).to(KINDS[dtype][0])
    mine = (golden * (1 + 1e-3 * torch.randn(140_000, generator=made))).to(dtype)
    found = measure_floats(golden, mine)
    error = (mine.double() - golden.double()).abs()
    assert found.max_absolute == float(error.max())
    cosine = torch.nn.functional.cosine_similarity(golden.double(), mine.double(), dim=0)
    assert found.cosine == pytest.approx(float(cosine), rel=1e-12)
    plain = error / golden.double().abs()
    assert found.thousandth == float((plain < 0.001).double().mean())


def test_equal_infinities_and_nans_are_no_error() -> None:
    golden = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    found = measure_floats(golden, golden.half())
    assert (found.strange, found.unequal, found.max_absolute) == (0, 0.0, 0.0)
    assert found.nonfinite_share == 0.0


def test_an_overflow_that_the_type_makes_necessary_is_no_error() -> None:
    found = measure_floats(torch.tensor([70_000.0, 1.0]), torch.tensor([math.inf, 1.0]).half())
    assert (found.strange, found.max_absolute) == (0, 0.0)


@pytest.mark.parametrize("wrong", [math.inf, math.nan, -math.inf])
def test_what_is_not_finite_on_one_side_is_an_infinite_error(wrong: float) -> None:
    found = measure_floats(torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, wrong]))
    assert (found.strange, found.max_absolute, found.nonfinite_share) == (1, math.inf, 1.0)
    assert found.thousandth == 0.5
    assert found.rmse == 0.0  # over finite elements


def test_the_cosine_of_very_large_and_very_small_outputs_is_defined() -> None:
    for scale in (1e300, 1e-14):
        values = torch.tensor([3.0, 4.0], dtype=torch.float64) * scale
        assert measure_floats(values, values).cosine == pytest.approx(1.0)


def test_an_output_that_rounds_to_zero_everywhere_may_be_zero() -> None:
    found = measure_floats(torch.tensor([1e-12, -1e-12]), torch.zeros(2).half())
    assert not found.is_one_zero
    assert found.thousandth == 1.0
    assert measure_floats(torch.tensor([1.0, 2.0]), torch.zeros(2).half()).is_one_zero


def test_integers_are_compared_without_rounding() -> None:
    golden = torch.tensor([2**62, 5, -(2**63)])
    found = measure_integers(golden, torch.tensor([2**62 + 1, 5, 2**63 - 1]))
    assert found.unequal == pytest.approx(2 / 3)
    assert found.max_absolute == float(2**64 - 1)
    flags = measure_integers(torch.tensor([True, False]), torch.tensor([True, True]))
    assert (flags.unequal, flags.max_absolute) == (0.5, 1.0)
