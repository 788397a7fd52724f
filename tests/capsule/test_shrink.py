"""Cases made smaller: both sides still belong together, and the same elements are wrong."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.capsule.case import Call, Case
from ait_llm.capsule.cuts import cuts_of
from ait_llm.capsule.measured import measured
from ait_llm.capsule.shrink import shrink
from ait_llm.opcheck.golden import DEVICE, golden_ops

LINEAR = {"transposeA": False, "transposeB": True, "hasBias": True}


def case_of(
    op: str, inputs: list[Tensor | None], params: dict[str, object], dumped: Tensor
) -> Case:
    golden = golden_ops.get(op)
    return Case(op, {}, golden, [Call(inputs, params)], 0, "outtensor0", 0, False, dumped)


def linear(rows: int, columns: int, row: int, column: int) -> Case:
    """A product with one wrong element."""
    torch.manual_seed(rows * columns)
    x, weight, bias = torch.randn(rows, 8), torch.randn(columns, 8), torch.randn(columns)
    x, weight, bias = x.half(), weight.half(), bias.half()
    dumped = (x.double() @ weight.double().T + bias.double()).half()
    dumped[row, column] += 4
    return case_of("LinearOperation", [x, weight, bias], LINEAR, dumped)


@settings(max_examples=8, deadline=None)
@given(st.data(), st.integers(2, 9), st.integers(2, 9))
def test_the_wrong_element_stays_with_its_row_and_column(
    data: st.DataObject, rows: int, columns: int
) -> None:
    row = data.draw(st.integers(0, rows - 1))
    column = data.draw(st.integers(0, columns - 1))
    large = linear(rows, columns, row, column)
    small = shrink(large)
    x, weight, bias = (each for each in small.case.call.inputs if each is not None)
    assert x.numel() + weight.numel() < (rows + columns) * 8
    assert float(large.dumped[row, column]) in small.case.dumped.flatten().tolist()
    # Independent of golden: all elements but the wrong one are still what the inputs make.
    right = x.double() @ weight.double().T + bias.double()
    off = (small.case.dumped.double() - right).abs() > 0.02
    assert int(off.sum()) == 1


def test_a_right_case_stays_as_it_is() -> None:
    large = linear(3, 4, 0, 0)
    large.dumped[0, 0] -= 4
    small = shrink(large)
    assert small.before == small.after
    assert small.cuts == []


def test_sums_over_a_row_are_not_cut() -> None:
    x, gamma = torch.randn(6, 32).half(), torch.ones(32).half()
    params = {"layerType": 1, "normParam": {"epsilon": 1e-5}}
    golden = golden_ops.get("RmsNormOperation").compute
    dumped = golden([x, gamma], params, DEVICE).outputs[0].clone()
    dumped[4] *= 1.05
    small = shrink(case_of("RmsNormOperation", [x, gamma], params, dumped))
    (rows, width), gamma_shape, output = small.after
    assert (width, gamma_shape, output) == (32, (32,), (rows, 32))
    assert rows < 6


def test_heads_are_cut_with_the_parameters_that_count_them() -> None:
    tokens, heads, width = 5, 4, 8
    torch.manual_seed(1)
    q, k, v = (torch.randn(tokens, heads * width).half() for _ in range(3))
    params = {
        "headNum": heads,
        "kvHeadNum": heads,
        "qkScale": width**-0.5,
        "calcType": 3,
        "maskType": 0,
        "qScale": 1.0,
    }
    lengths = torch.tensor([2, 3], dtype=torch.int32)
    inputs: list[Tensor | None] = [q, k, v, lengths]
    dumped = golden_ops.get("SelfAttentionOperation").compute(inputs, params, DEVICE).outputs[0]
    dumped = dumped.clone()
    dumped[2:] = dumped[2:] * 1.1  # the second sequence
    small = shrink(case_of("SelfAttentionOperation", inputs, params, dumped))
    kept = small.case.call.params["headNum"]
    assert kept == small.case.call.params["kvHeadNum"] < heads
    q, k, v = (each for each in small.case.call.inputs[:3] if each is not None)
    assert q.shape == k.shape == (tokens, kept * width)
    assert v.shape == small.case.dumped.shape
    assert measured(small.case).found.check == "elements"


def test_candidates_keep_parts_in_order() -> None:
    for cut in cuts_of(linear(4, 6, 0, 0)):
        if cut.dim is not None:
            covered = sorted(index for part in cut.parts for index in part)
            assert covered == list(range((4, 6)[cut.dim]))


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_value_that_is_not_finite_stays(value: float) -> None:
    large = linear(7, 5, 3, 2)
    large.dumped[3, 2] = value
    small = shrink(large)
    assert small.case.dumped.shape == (1, 1)
    assert not bool(small.case.dumped.isfinite())
