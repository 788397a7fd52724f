"""Sums that units for floats of 8 bits cut short, held to a loop over what is known of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.judge.standards import Computation, Output, standards
from ait_llm.opcheck.golden import GOLDEN, GoldenOp
from ait_llm.opcheck.golden.aten.arithmetic import kernel_of
from ait_llm.opcheck.golden.base import ALL_SHORT, SOME_SHORT
from ait_llm.opcheck.golden.functions import golden_function

ROWS, COLUMNS, INNER = 96, 128, 1024


def unit(x: Tensor, weight: Tensor, terms: int) -> Tensor:
    """32 products at a time, each and the sum cut after 13 bits behind the largest one's point."""
    found = torch.zeros(len(x), len(weight))
    for start in range(0, x.shape[1], terms):
        total = torch.zeros(len(x), len(weight))
        for at in range(start, min(start + terms, x.shape[1]), 32):
            each = x[:, None, at : at + 32] * weight[None, :, at : at + 32]
            each = torch.cat([each, total[..., None]], -1)
            step = torch.exp2(each.abs().amax(-1, keepdim=True).log2().floor() - 13)
            total = ((each / step).trunc() * step).sum(-1)
        found += total
    return found


def small(*shape: int) -> Tensor:
    return torch.randn(*shape).to(torch.float8_e4m3fn).float()


def linear(short_sums: int) -> GoldenOp:
    return golden_function(
        "Product",
        lambda given: functional.linear(*given),  # type: ignore[arg-type]  # none is absent
        short_sums=short_sums,
    )


def passes(golden: GoldenOp, inputs: list[Tensor], mine: Tensor) -> bool:
    golden.recover(inputs, [mine], {})
    computation = Computation(golden, inputs, {}, lambda how: golden.compute(inputs, {}, how))
    right = computation.result(GOLDEN).outputs[0]
    output = Output("output", 0, False, right, mine, None, computation)
    return standards.get("contract")(output).passed


@pytest.mark.parametrize("terms", [ALL_SHORT, SOME_SHORT])
def test_a_unit_that_cuts_its_sums_is_right_where_that_is_declared(terms: int) -> None:
    x, weight = small(ROWS, INNER).bfloat16(), small(COLUMNS, INNER).bfloat16()
    mine = unit(x.float(), weight.float(), min(terms, INNER)).bfloat16()
    assert passes(linear(terms), [x, weight], mine)
    if terms == ALL_SHORT:
        assert not passes(linear(0), [x, weight], mine)


def test_a_result_that_is_off_by_more_than_such_a_unit_cuts_fails() -> None:
    x, weight = small(ROWS, INNER).bfloat16(), small(COLUMNS, INNER).bfloat16()
    mine = unit(x.float(), weight.float(), SOME_SHORT)
    assert not passes(linear(SOME_SHORT), [x, weight], (mine * 1.01).bfloat16())


@pytest.mark.parametrize(
    ("plain", "terms"),
    [({}, SOME_SHORT), ({"use_fast_accum": True}, ALL_SHORT), ({"7": True}, ALL_SHORT)],
)
def test_scaled_products_say_how_far_they_add_up(plain: dict[str, bool], terms: int) -> None:
    assert kernel_of("aten._scaled_mm.default", plain).short_sums == terms
