"""How golden and the device run a call: precision, gradients, and untouched arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ait_llm.apicheck.sides import Side, golden_side, run_call, shortened

DEVICE = Side(torch.device("cpu"))


def types(api: str, function: Any, *args: Any, side: Side | None = None) -> torch.dtype:
    found: torch.dtype = run_call(function, api, args, {}, side or golden_side()).output.dtype
    return found


@pytest.mark.parametrize(
    ("given", "golden"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float64),
        (torch.float64, torch.float64),
        (torch.complex64, torch.complex128),
        (torch.int32, torch.int32),
        (torch.bool, torch.bool),
    ],
)
def test_golden_has_more_bits_than_the_recorded_type(
    given: torch.dtype, golden: torch.dtype
) -> None:
    tensor = torch.ones(3, dtype=given)
    assert types("clone", torch.clone, tensor) == golden
    assert types("clone", torch.clone, tensor, side=DEVICE) == given


def test_a_mixture_of_types_is_raised_to_one() -> None:
    half, single = torch.ones(2, 3, dtype=torch.float16), torch.ones(3)
    args = [half, [3], single, single]
    found = run_call(torch.nn.functional.layer_norm, "layer_norm", args, {}, golden_side())
    assert found.output.dtype == torch.float64
    stacked = run_call(torch.cat, "cat", [[half[0], single]], {}, golden_side())
    assert stacked.output.dtype == torch.float64


def test_golden_is_in_float64_throughout_if_asked_for() -> None:
    half = torch.ones(3, dtype=torch.float16)
    assert types("clone", torch.clone, half, side=golden_side(all_float64=True)) == torch.float64


def test_requested_types_are_raised_too() -> None:
    found = run_call(torch.sum, "sum", [torch.ones(2)], {"dtype": torch.float16}, golden_side())
    assert found.output.dtype == torch.float32


def test_type_as_is_not_raised_and_integers_become_what_the_cpu_has() -> None:
    a, b = torch.ones(2), torch.ones(2, dtype=torch.float16)
    assert types("type_as", torch.Tensor.type_as, a, b) == torch.float16
    histogram = run_call(torch.histc, "histc", [torch.tensor([1, 2, 2])], {}, golden_side())
    assert histogram.output.dtype == torch.float32
    loss = run_call(
        torch.nn.functional.cross_entropy,
        "cross_entropy",
        [torch.eye(2), torch.tensor([0, 1], dtype=torch.int32)],
        {},
        golden_side(),
    )
    assert loss.output.dtype == torch.float64


def test_devices_are_those_of_the_side() -> None:
    found = run_call(
        torch.full, "full", [[2], 1.0], {"device": torch.device("meta")}, golden_side()
    )
    assert found.output.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("api", "function", "rest"),
    [
        ("add_", torch.Tensor.add_, [1.0]),
        ("__setitem__", torch.Tensor.__setitem__, [0, 9.0]),
        ("__iadd__", torch.Tensor.__iadd__, [1.0]),
    ],
)
def test_what_a_call_writes_to_is_a_copy_and_its_output(
    api: str, function: Any, rest: list[Any]
) -> None:
    tensor = torch.zeros(3)
    first = run_call(function, api, [tensor, *rest], {}, DEVICE)
    second = run_call(function, api, [tensor, *rest], {}, DEVICE)
    assert torch.equal(tensor, torch.zeros(3))
    assert not torch.equal(first.output, tensor)
    assert torch.equal(first.output, second.output)


def test_gradients_are_those_of_autograd() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    arriving = torch.randn(3, 5, dtype=torch.float64)
    found = run_call(torch.nn.functional.linear, "linear", [x, w], {}, DEVICE, [arriving])
    expected = torch.autograd.grad(torch.nn.functional.linear(x, w), [x, w], arriving)
    assert len(found.gradients) == 2
    for mine, theirs in zip(found.gradients, expected, strict=True):
        assert mine is not None
        assert torch.equal(mine, theirs)


def test_an_in_place_call_has_gradients() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    found = run_call(torch.relu_, "relu_", [x], {}, DEVICE, [torch.tensor([3.0, 4.0])])
    (gradient,) = found.gradients
    assert gradient is not None
    assert gradient.tolist() == [3.0, 0.0]


def test_each_of_several_outputs_gets_its_gradient() -> None:
    x = torch.arange(4.0).requires_grad_()
    arriving = [torch.tensor([1.0, 2.0]), None]
    found = run_call(torch.chunk, "chunk", [x, 2], {}, DEVICE, arriving)
    (gradient,) = found.gradients
    assert gradient is not None
    assert gradient.tolist() == [1.0, 2.0, 0.0, 0.0]
    top = run_call(torch.topk, "topk", [x, 1], {}, DEVICE, [torch.tensor([5.0])])
    assert top.gradients[0] is not None
    assert top.gradients[0].tolist() == [0.0, 0.0, 0.0, 5.0]


@pytest.mark.parametrize(
    ("arguments", "arriving", "problem"),
    [
        ([torch.ones(2)], [torch.ones(2)], "requires a gradient"),
        ([torch.ones(2, requires_grad=True)], [torch.ones(3)], "recorded gradient of"),
        ([torch.ones(2, requires_grad=True)], [], "0 recorded gradients"),
    ],
)
def test_a_backward_pass_that_cannot_be_made_leaves_the_forward(
    arguments: list[Any], arriving: list[Any], problem: str
) -> None:
    found = run_call(torch.exp, "exp", arguments, {}, DEVICE, arriving)
    assert found.output.shape == (2,)
    assert problem in found.problem
    assert found.gradients == []


def test_the_npu_multiplies_twelve_bits_of_float32() -> None:
    unit = 2.0**-11
    values = torch.tensor([1 + 0.4 * unit, 1 + 0.6 * unit, -(1 + 1.5 * unit), 3.0, 0.0])
    assert shortened(values).tolist() == [1.0, 1 + unit, -(1 + 2 * unit), 3.0, 0.0]
    weight, image = torch.full((1, 1, 1), 1 + 0.4 * unit), torch.ones(1, 1, 3)
    side = golden_side(for_npu=True)
    found = run_call(torch.nn.functional.conv1d, "conv1d", [image, weight], {}, side)
    assert found.output.dtype == torch.float32
    assert found.output.unique().tolist() == [1.0]
