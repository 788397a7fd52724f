"""The classic standard against loops over elements."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.judge.standards import Computation, Judgement, Output, standards
from ait_llm.opcheck.element_errors import (
    cosine_similarity,
    errors_between,
    errors_of,
    kl_divergence,
)
from ait_llm.opcheck.golden import Result, UnverifiableError, golden_ops


def output(golden: Tensor, mine: Tensor, defined: Tensor | None = None) -> Output:
    operator = golden_ops.get("LinearOperation")
    computation = Computation(operator, [], {}, lambda arithmetic: Result((golden,)))
    return Output("outtensor0", 0, False, golden, mine, defined, computation)


def classic(golden: Tensor, mine: Tensor, defined: Tensor | None = None) -> Judgement:
    return standards.get("classic")(output(golden, mine, defined))


VALUES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1e-8, -2.0, 3.5, math.inf, -math.inf, math.nan, 1e30]),
        st.sampled_from([0.0, 1e-8, -2.001, 3.5, math.inf, -math.inf, math.nan, 1e30]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_errors_equal_those_of_a_loop(pairs: list[tuple[float, float]]) -> None:
    golden, mine = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    relative, _, _ = errors_between(golden, mine)
    largest = 0.0
    for place, (g, m) in enumerate(pairs):
        if g == m or (math.isnan(g) and math.isnan(m)):
            expected = 0.0
        elif not (math.isfinite(g) and math.isfinite(m)):
            expected = math.inf
        else:
            expected = abs(m - g) / (abs(g) if abs(g) > 2.0**-23 else 2.0**-7)
        assert float(relative[place]) == pytest.approx(expected, rel=1e-12)
        largest = max(largest, expected)
    assert errors_of(output(golden, mine)).max_relative == pytest.approx(largest, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "error", "rate"),
    [
        (torch.float32, 1e-4, 99.99),
        (torch.float16, 1e-3, 99.9),
        (torch.bfloat16, 4e-3, 99.6),
        (torch.int32, 1e-4, 99.99),
        (torch.int64, 1e-4, 99.99),
        (torch.float64, 1e-4, 99.99),
    ],
)
def test_the_manuals_share_of_elements_decides(
    dtype: torch.dtype, error: float, rate: float
) -> None:
    golden = torch.full((10000,), 64, dtype=dtype)
    allowed = round(10000 * (100 - rate) / 100)
    mine = golden.clone()
    mine[:allowed] = 96
    just = classic(golden, mine)
    assert just.passed
    assert just.limit == f"{rate:g}%(error<{error:g})"
    mine[allowed] = 96
    over = classic(golden, mine)
    assert not over.passed
    assert over.first_bad == 0


def test_a_required_share_of_all_can_be_reached() -> None:
    golden = torch.tensor([True, False])
    assert classic(golden, golden.clone()).passed
    assert not classic(golden, ~golden).passed


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_quantised_integers_may_be_off_by_one_step_only(dtype: torch.dtype) -> None:
    golden = torch.full((10,), 5, dtype=dtype)
    assert classic(golden, golden + 1).passed
    assert not classic(golden, golden + 4).passed  # 80% is no relative error of at most 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_value_that_is_not_finite_fails_whatever_the_share(value: float) -> None:
    golden = torch.ones(100_000)
    mine = golden.clone()
    mine[777] = value
    found = classic(golden, mine)
    assert not found.passed
    assert found.first_bad == 777
    assert "not finite" in found.reason


def test_the_same_nan_and_infinity_pass() -> None:
    golden = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert classic(golden, golden.clone()).passed
    assert not classic(golden, golden.flip(0)).passed


def test_an_element_where_golden_is_zero_is_looked_at() -> None:
    assert not classic(torch.zeros(4), torch.full((4,), 0.5)).passed
    assert classic(torch.zeros(4).half(), torch.full((4,), 1e-6).half()).passed


def test_elements_that_the_operator_leaves_undefined_do_not_count() -> None:
    golden, mine = torch.ones(4, 2), torch.ones(4, 2)
    mine[2:] = math.nan
    assert classic(
        golden, mine, torch.tensor([[True], [True], [False], [False]]).expand(4, 2)
    ).passed
    mine[0, 1] = 2
    found = classic(golden, mine, torch.tensor([[True], [True], [False], [False]]).expand(4, 2))
    assert (found.passed, found.first_bad, found.values["rate"]) == (False, 1, 75.0)


def test_large_integers_are_told_apart() -> None:
    golden = torch.tensor([2**60, 2**60 + 1])
    errors = errors_of(output(golden, golden.flip(0)))
    assert errors.broken == 0
    assert not classic(torch.tensor([0, 1]), torch.tensor([1, 1])).passed


def test_a_large_output_is_judged_like_its_blocks() -> None:
    """Counts, the largest errors and the first bad element, against one pass over all."""
    torch.manual_seed(5)
    golden = torch.randn(3, 50_000).half()
    mine = golden.clone()
    mine.view(-1)[70_001::997] *= 1.01
    mine[2, 40_000] = math.inf
    defined = torch.ones(3, 1, dtype=torch.bool).expand(3, 50_000).clone()
    defined.view(-1)[70_001] = False
    found = errors_of(output(golden, mine, defined))
    relative, absolute, _ = errors_between(golden.reshape(-1), mine.reshape(-1))
    relative, absolute = relative[defined.reshape(-1)], absolute[defined.reshape(-1)]
    assert (found.count, found.broken) == (149_999, 1)
    assert found.over == int((relative > 1e-3).sum()) > 50
    assert found.over_absolute == int((absolute > 1e-3).sum())
    assert found.first_bad == 70_998
    assert (found.max_relative, found.max_absolute) == (math.inf, math.inf)


def test_empty_outputs_pass() -> None:
    assert classic(torch.ones(0, 4), torch.ones(0, 4)).passed


def test_a_type_without_a_level_is_not_judged() -> None:
    one = torch.ones(2).to(torch.float8_e5m2)
    with pytest.raises(UnverifiableError, match="no limit for float8_e5m2"):
        classic(one, one)


def test_cosine_and_divergence_equal_their_definitions() -> None:
    golden, mine = torch.tensor([1.0, 2.0, -3.0]), torch.tensor([1.5, 1.0, -2.0])
    pair = output(golden, mine)
    dot = sum(g * m for g, m in zip([1, 2, -3], [1.5, 1, -2], strict=True))
    assert cosine_similarity(pair) == pytest.approx(dot / math.sqrt(14 * 7.25))
    p = [math.exp(v) for v in (1, 2, -3)]
    q = [math.exp(v) for v in (1.5, 1, -2)]
    p, q = [v / sum(p) for v in p], [v / sum(q) for v in q]
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert kl_divergence(pair) == pytest.approx(expected)
    assert kl_divergence(output(golden, golden)) == 0
    zero = torch.zeros(3)
    assert cosine_similarity(output(zero, zero)) == 1
    assert cosine_similarity(output(zero, golden)) == 0
    huge = torch.full((4,), 1e200, dtype=torch.float64)
    assert cosine_similarity(output(huge, huge)) == pytest.approx(1)
