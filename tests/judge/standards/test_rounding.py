"""What rounding permits, against formulas written out, autograd and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.judge.standards import Output
from ait_llm.judge.standards.evaluations import moved_input
from ait_llm.judge.standards.rounding import limits_of, permitted_of, spacing, unit_of

Bind = Callable[..., Output]
PLAIN = {"hasBias": False}


@settings(deadline=None, max_examples=50)
@given(st.floats(-65472, 65472, width=16, allow_subnormal=False))
def test_the_spacing_is_that_of_numpy(value: float) -> None:
    normal = max(abs(value), float(np.finfo(np.float16).smallest_normal))
    expected = float(np.spacing(np.float16(normal)))
    assert float(spacing(torch.tensor([value]).double(), torch.float16)) == expected


def test_values_beyond_the_type_have_the_spacing_of_its_largest() -> None:
    assert float(spacing(torch.tensor([1e9]).double(), torch.float16)) == 32


def test_powers_of_two_have_the_spacing_above_them() -> None:
    powers = 2.0 ** torch.arange(-120, 120).double()
    expected = [float(np.spacing(np.float32(value))) for value in powers.tolist()]
    assert spacing(powers, torch.float32).tolist() == expected


def test_the_bound_of_a_product_is_that_of_higham(bind: Bind) -> None:
    x, weight = torch.randn(3, 100), torch.randn(5, 100)
    found = permitted_of(bind("LinearOperation", [x, weight], PLAIN))
    for row in range(3):
        for column in range(5):
            pairs = list(zip(x[row].tolist(), weight[column].tolist(), strict=True))
            exact = sum(a * b for a, b in pairs)
            partial = sum(abs(a * b) for a, b in pairs)
            half = float(np.spacing(np.float32(abs(exact)))) / 2
            expected = half * (1 + 2**-8) + (100 + 64) * 2.0**-24 * partial
            assert float(found.bound[row, column]) == pytest.approx(expected, rel=1e-9)
            assert float(found.exact[row, column]) == pytest.approx(exact, rel=1e-9)


def test_a_long_sum_is_bounded_like_a_random_walk(bind: Bind) -> None:
    x, weight = torch.randn(2, 4096), torch.randn(2, 4096)
    found = permitted_of(bind("LinearOperation", [x, weight], PLAIN))
    partial = x.double().abs() @ weight.double().abs().T
    half = spacing(found.exact, torch.float32) / 2
    summed = (found.bound - half * (1 + 2**-8)) / partial / 2.0**-24
    torch.testing.assert_close(summed, torch.full_like(summed, 16 * 64 + 64), rtol=1e-6, atol=0)


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.einsum("qhd,khd->hqk", query, key) * 0.25
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value)


def test_sensitivity_is_the_norm_of_the_jacobian(bind: Bind) -> None:
    """16-bit roundings on the way move attention as much as rounding its inputs does."""
    inputs = [torch.randn(24, 2, 16).half() for _ in range(3)]
    lengths = torch.tensor([24], dtype=torch.int32)
    # The kernel that keeps scores in float32; the others move them, too.
    params = {"headNum": 2, "kvHeadNum": 2, "calcType": 3, "qkScale": 0.25, "kernelType": 1}
    params["socVersion"] = "Ascend910B"
    output = bind("SelfAttentionOperation", [*inputs, lengths], params)
    found = permitted_of(output)
    wide = [tensor.double() for tensor in inputs]
    jacobians = torch.autograd.functional.jacobian(_attention, tuple(wide))
    squares = [
        (jacobian * tensor).square().sum((3, 4, 5))
        for jacobian, tensor in zip(jacobians, wide, strict=True)
    ]
    norm = torch.stack(squares).sum(0).sqrt()
    assert limits_of(output).shared
    staged = (found.deviation.square() - spacing(found.exact, torch.float16).square() / 12).sqrt()
    ratio = staged / (norm * (1 / 3) ** 0.5 * 0.7355 * 2.0**-11)
    assert 0.8 < float(ratio.median()) < 1.5
    assert float(ratio.min()) > 0.3  # four samples scatter


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_roundings_on_the_way_err_as_evenly_spread_values_do(
    bind: Bind, dtype: torch.dtype
) -> None:
    """Values that are spread over some powers of two, rounded to 16 bits."""
    values = torch.exp2(8 * torch.rand(100_000, dtype=torch.float64))
    found = ((values.to(dtype).double() - values) / values).square().mean().sqrt()
    x = torch.ones(1, 8, dtype=dtype)
    output = bind("AllReduceOperation", [x], {"rankSize": 1, "allReduceType": "sum"})
    own = limits_of(output)
    given = replace(own, roundings=1, unmoved=x.double(), moved=[2 * x.double()], move=1.0)
    staged, plain = (
        replace(given, roundings=count).at(slice(None)).deviation.square() for count in (1, 0)
    )
    torch.testing.assert_close((staged - plain).sqrt(), found.expand(1, 8), rtol=0.01, atol=0)


def test_inputs_move_to_a_neighbour() -> None:
    x = torch.tensor([1.0, -2.5, 0.0, torch.inf, -torch.inf, torch.nan, 65504]).half()
    moved = moved_input(x, 0.1)
    assert moved is not None
    for before, after in zip(x[:2].numpy(), moved[:2].numpy(), strict=True):
        assert after in (np.nextafter(before, np.float16(9)), np.nextafter(before, np.float16(-9)))
    assert torch.equal(moved[2:].view(torch.int16), x[2:].view(torch.int16))


def test_float32_inputs_move_by_the_given_share() -> None:
    x = torch.randn(1000)
    moved = moved_input(x, 2.0**-12)
    assert moved is not None
    share = ((moved - x) / x).abs()
    torch.testing.assert_close(share, torch.full_like(share, 2.0**-12), rtol=1e-3, atol=0)


def test_the_unit_is_that_of_the_narrowest_float() -> None:
    inputs = [torch.zeros(1), torch.zeros(1).half(), None, torch.zeros(1, dtype=torch.int8)]
    assert unit_of(inputs) == 2.0**-11
    assert unit_of([torch.zeros(1).bfloat16()]) == 2.0**-8
    assert unit_of([torch.zeros(1)]) == 2.0**-24


def test_scores_that_a_mask_hides_leave_the_others_their_roundings(bind: Bind) -> None:
    """A causal mask of infinities made every sample undefined, and bounds those of copying."""
    inputs = [torch.randn(24, 2, 16).half() for _ in range(3)]
    hidden = torch.full((24, 24), -torch.inf).triu(1).half()
    lengths = torch.tensor([24], dtype=torch.int32)
    params = {"headNum": 2, "kvHeadNum": 2, "calcType": 3, "qkScale": 0.25, "maskType": 1}
    found = limits_of(bind("SelfAttentionOperation", [*inputs, hidden, lengths], params))
    assert all(moved.isfinite().all() for moved in found.moved)
    assert all(bool((moved != found.unmoved).all()) for moved in found.moved)
