"""What the contract passes and what it fails, and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.judge.standards import Judgement, Output, standards
from ait_llm.judge.standards.rounding import limits_of, permitted_of
from ait_llm.opcheck.golden import golden_ops

Bind = Callable[..., Output]
PLAIN = {"hasBias": False}
LINEAR = "LinearOperation"


def judge(output: Output) -> Judgement:
    return standards.get("contract")(output)


def operands(dtype: torch.dtype, terms: int = 256) -> list[Tensor]:
    return [torch.randn(24, terms).to(dtype), (torch.randn(32, terms) / 16).to(dtype)]


@settings(deadline=None, max_examples=15)
@given(
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    seed=st.integers(0, 1000),
    parts=st.integers(1, 9),
)
def test_any_order_of_a_float32_sum_passes(
    bind: Bind, dtype: torch.dtype, seed: int, parts: int
) -> None:
    torch.manual_seed(seed)
    x, weight = operands(dtype)
    order = torch.randperm(256)
    total = torch.zeros(24, 32)
    for part in order.tensor_split(parts):
        total += x[:, part].float() @ weight[:, part].float().T
    assert judge(bind(LINEAR, [x, weight], PLAIN, total.to(dtype))).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_one_element_two_spacings_off_fails_and_is_located(bind: Bind, dtype: torch.dtype) -> None:
    inputs = operands(dtype)
    golden = bind(LINEAR, inputs, PLAIN).golden
    place = int(golden.abs().argmax())
    mine = golden.clone()
    steps = 2 if dtype.itemsize == 2 else 4096
    mine.view(-1)[place] *= 1 + steps * torch.finfo(dtype).eps
    found = judge(bind(LINEAR, inputs, PLAIN, mine))
    assert not found.passed
    assert found.first_bad == place
    assert "1 of 768 elements are beyond their bound" in found.reason


def test_a_scale_that_no_element_shows_is_found_in_all(bind: Bind) -> None:
    """Attention may be off by more in each element, as its roundings on the way are random."""
    inputs = [torch.randn(256, 4, 32).bfloat16() for _ in range(3)]
    op = "SelfAttentionOperation"
    params = {"headNum": 4, "kvHeadNum": 4, "calcType": 3, "qkScale": 0.2}
    given = [*inputs, torch.tensor([256], dtype=torch.int32)]
    exact = permitted_of(bind(op, given, params)).exact
    assert judge(bind(op, given, params)).values["scale"] == pytest.approx(0, abs=1e-6)
    found = judge(bind(op, given, params, (exact * 1.004).bfloat16()))
    assert not found.passed
    assert "in proportion to golden" in found.reason
    assert found.values["scale"] == pytest.approx(0.004, rel=0.3)
    assert found.values["worst"] < 1


def test_what_the_least_limits_refuse_is_judged_by_the_widest(bind: Bind) -> None:
    """A sum that cancels, off by more than a quarter of its terms permits."""
    inputs = [torch.randn(4, 4096).half(), torch.randn(520, 4096).half()]
    widest = permitted_of(bind(LINEAR, inputs, PLAIN))
    place = int(widest.exact.abs().argmin())
    for share, passes in ((0.8, True), (1.2, False)):
        mine = widest.exact.clone()
        mine.view(-1)[place] += share * widest.bound.view(-1)[place]
        output = bind(LINEAR, inputs, PLAIN, mine.half())
        assert limits_of(output).is_least
        found = judge(output)
        assert found.passed == passes
        assert found.values["worst"] == pytest.approx(share, rel=0.01)
        assert not limits_of(output).is_least
        assert found.first_bad == (None if passes else place)


def test_rounding_towards_zero_is_no_rounding_to_nearest(bind: Bind) -> None:
    inputs = operands(torch.bfloat16)
    exact = (inputs[0].double() @ inputs[1].double().T).float()
    truncated = (exact.view(torch.int32) & -65536).view(torch.float32).bfloat16()
    assert not judge(bind(LINEAR, inputs, PLAIN, truncated)).passed


def test_sums_kept_in_16_bits_are_noisier_than_rounding(bind: Bind) -> None:
    inputs = operands(torch.bfloat16, 64)
    total = torch.zeros(24, 32)
    for start in range(0, 64, 16):
        part = slice(start, start + 16)
        total = (total + inputs[0][:, part].float() @ inputs[1][:, part].float().T).bfloat16()
        total = total.float()
    found = judge(bind(LINEAR, inputs, PLAIN, total.bfloat16()))
    assert not found.passed


def test_a_constant_output_may_be_rounded_one_way(bind: Bind) -> None:
    """All errors are the same half a spacing; they are one error, not a thousand."""
    x = torch.full((64, 64), 1.0).bfloat16()
    params = {"elewiseType": 2, "mulsParam": {"varAttr": 1 + 2.0**-8}}  # a tie
    for mine in (1.0, 1 + 2.0**-7):
        output = bind("ElewiseOperation", [x], params, torch.full_like(x, mine))
        assert judge(output).passed


def test_nan_and_infinity_must_agree(bind: Bind) -> None:
    x = torch.randn(4, 8)
    x[0, 0], x[1, 1], x[2, 2] = torch.nan, torch.inf, -torch.inf
    params = {"elewiseType": 2, "mulsParam": {"varAttr": 2.0}}
    assert judge(bind("ElewiseOperation", [x], params)).passed
    for place, value in ((0, 1.0), (9, torch.nan), (18, torch.inf), (31, torch.nan)):
        mine = x * 2
        mine.view(-1)[place] = value
        found = judge(bind("ElewiseOperation", [x], params, mine))
        assert not found.passed
        assert found.first_bad == place
        assert "not finite" in found.reason


def test_the_largest_number_may_round_to_infinity(bind: Bind) -> None:
    x = torch.tensor([[65504.0, 1.0]]).half()
    params = {"elewiseType": 2, "mulsParam": {"varAttr": 1 + 2.0**-12}}  # a tie with infinity
    for value in (65504.0, torch.inf):
        mine = torch.tensor([[value, 1.0]]).half()
        assert judge(bind("ElewiseOperation", [x], params, mine)).passed
    mine = torch.tensor([[-torch.inf, 1.0]]).half()
    assert not judge(bind("ElewiseOperation", [x], params, mine)).passed


def test_what_is_undefined_is_not_looked_at(bind: Bind) -> None:
    inputs = operands(torch.float16)
    mine = bind(LINEAR, inputs, PLAIN).golden.clone()
    mine[-1] = torch.nan
    defined = torch.ones(24, 32, dtype=torch.bool)
    defined[-1] = False
    assert judge(bind(LINEAR, inputs, PLAIN, mine, defined=defined)).passed
    assert not judge(bind(LINEAR, inputs, PLAIN, mine)).passed


def test_nothing_is_right_about_nothing(bind: Bind) -> None:
    inputs = [torch.randn(0, 16).half(), torch.randn(8, 16).half()]
    assert judge(bind(LINEAR, inputs, PLAIN)).passed


def test_quantised_numbers_may_be_off_by_one_at_ties_only(bind: Bind) -> None:
    inputs, params = [torch.randn(64, 128).half()], {"elewiseType": 19}
    golden = bind("ElewiseOperation", inputs, params).golden
    mine = golden.clone()
    mine[0, 0] -= 1 if mine[0, 0] > 0 else -1
    assert judge(bind("ElewiseOperation", inputs, params, mine)).passed
    mine[0, 0] -= 1 if mine[0, 0] > 0 else -1
    found = judge(bind("ElewiseOperation", inputs, params, mine))
    assert (found.passed, found.first_bad) == (False, 0)
    many = golden.clone()
    many[:2] -= torch.sign(many[:2])
    assert not judge(bind("ElewiseOperation", inputs, params, many)).passed


def test_moved_data_must_agree_in_every_bit(bind: Bind) -> None:
    inputs, params = [torch.randn(8, 16), torch.arange(4)], {"axis": 0, "batchDims": 0}
    mine = bind("GatherOperation", inputs, params).golden.clone()
    mine[1, 1] *= 1 + 2.0**-23
    found = judge(bind("GatherOperation", inputs, params, mine))
    assert (found.passed, found.first_bad) == (False, 17)


def test_every_operator_declares_its_arithmetic() -> None:
    """Those that only move data by the reference do; none of them also rounds."""
    params = {"elewiseType": 8}
    moving = {name for name in golden_ops if golden_ops.get(name).kernel(params).moves}
    assert {"GatherOperation", "ConcatOperation", "ReshapeAndCacheOperation"} <= moving
    assert not moving & {"LinearOperation", "RmsNormOperation", "SelfAttentionOperation"}
    for name in moving:
        kernel = golden_ops.get(name).kernel(params)
        assert (kernel.roundings, kernel.products, kernel.quantises) == (0, False, False)
