"""exact, ulp and benchmark against their definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ait_llm.judge.standards import Output, standards

Bind = Callable[..., Output]
GATHER, GATHER_PARAMS = "GatherOperation", {"axis": 0, "batchDims": 0}
DOUBLED = {"elewiseType": 2, "mulsParam": {"varAttr": 2.0}}


def nan_with_payload(payload: int) -> torch.Tensor:
    return torch.tensor([0x7FC00000 | payload], dtype=torch.int32).view(torch.float32)


def test_exact_keeps_the_payload_of_a_moved_nan(bind: Bind) -> None:
    x, index = torch.cat([nan_with_payload(5), torch.ones(1)]).reshape(2, 1), torch.arange(2)
    exact = standards.get("exact")
    assert exact(bind(GATHER, [x, index], GATHER_PARAMS)).passed
    other = torch.cat([nan_with_payload(6), torch.ones(1)]).reshape(2, 1)
    found = exact(bind(GATHER, [x, index], GATHER_PARAMS, other))
    assert (found.passed, found.first_bad) == (False, 0)


def test_exact_takes_any_nan_of_a_computation(bind: Bind) -> None:
    x = torch.cat([nan_with_payload(5), torch.ones(1)]).reshape(2, 1)
    mine = torch.cat([nan_with_payload(6), 2 * torch.ones(1)]).reshape(2, 1)
    assert standards.get("exact")(bind("ElewiseOperation", [x], DOUBLED, mine)).passed


def test_exact_tells_zeros_apart(bind: Bind) -> None:
    x, index = torch.zeros(2, 1), torch.arange(2)
    found = standards.get("exact")(bind(GATHER, [x, index], GATHER_PARAMS, -x))
    assert found.values["different"] == 2


def test_ulp_counts_units_of_the_golden_value(bind: Bind) -> None:
    x = torch.rand(40, 50).half() + 0.25
    golden = bind("ElewiseOperation", [x], DOUBLED).golden
    mine = golden.clone()
    mine[0, 0] = float(np.nextafter(mine[0, 0].numpy(), np.float16(9)))
    mine[3, 4] += 3 * float(np.spacing(golden[3, 4].numpy()))
    found = standards.get("ulp")(bind("ElewiseOperation", [x], DOUBLED, mine))
    assert found.values["largest"] == 3
    assert found.values["share"] == 1 / 2000
    assert found.passed  # less than a thousandth
    mine[5, 6] += 2 * float(np.spacing(golden[5, 6].numpy()))
    found = standards.get("ulp")(bind("ElewiseOperation", [x], DOUBLED, mine))
    assert (found.passed, found.first_bad) == (False, 3 * 50 + 4)


def test_ulp_of_float32_needs_a_small_mean_or_few_far_ones(bind: Bind) -> None:
    x = torch.rand(40, 50) + 1
    golden = bind("ElewiseOperation", [x], DOUBLED).golden
    ulp = standards.get("ulp")
    assert ulp(bind("ElewiseOperation", [x], DOUBLED, golden * (1 + 40 * 2.0**-23))).passed
    assert not ulp(bind("ElewiseOperation", [x], DOUBLED, golden * (1 + 200 * 2.0**-23))).passed
    mine = golden.clone()
    mine[0, 0] = torch.nan
    assert not ulp(bind("ElewiseOperation", [x], DOUBLED, mine)).passed


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.3, True), (9.0, False)])
def test_benchmark_relates_errors_to_those_of_float32(
    bind: Bind, factor: float, passed: bool
) -> None:
    x, weight = torch.randn(16, 64).half(), torch.randn(24, 64).half()
    exact = x.double() @ weight.double().T
    peer = exact.float().half()
    noise = (peer.double() - exact) * factor
    output = bind("LinearOperation", [x, weight], {"hasBias": False}, (exact + noise).half())
    assert standards.get("benchmark")(output).passed == passed


def test_benchmark_bounds_the_largest_and_the_mean_error(bind: Bind) -> None:
    """Each has a limit of its own: neither stands in for the other."""
    inputs, params = [torch.rand(16, 64).half(), torch.rand(24, 64).half()], {"hasBias": False}
    golden = bind("LinearOperation", inputs, params).golden
    one, all_of_them = golden.clone(), golden.clone()
    one[3, 5] *= 1 + 10 * 2.0**-11
    all_of_them[::2] *= 1 + 2.5 * 2.0**-11
    all_of_them[1::2] *= 1 - 2.5 * 2.0**-11
    for mine, over, within in (
        (one, "max_relative", "mean_relative"),
        (all_of_them, "mean_relative", "max_relative"),
    ):
        found = standards.get("benchmark")(bind("LinearOperation", inputs, params, mine))
        assert not found.passed
        assert over in found.reason
        assert within not in found.reason


def test_benchmark_wants_the_same_infinities(bind: Bind) -> None:
    x = torch.ones(2, 2)
    mine = torch.tensor([[2.0, 2.0], [torch.inf, 2.0]])
    found = standards.get("benchmark")(bind("ElewiseOperation", [x], DOUBLED, mine))
    assert (found.passed, found.first_bad) == (False, 2)


def test_benchmark_names_what_is_beyond(bind: Bind) -> None:
    x = torch.rand(16, 16) + 1
    found = standards.get("benchmark")(bind("ElewiseOperation", [x], DOUBLED, x * 2.1))
    assert not found.passed
    assert "rmse is" in found.reason
