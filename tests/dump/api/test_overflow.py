"""Task overflow_check: the call that makes bad values of good ones, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from api_captures import Debug, Read
from torch import nn

from ait_llm.dump.api.overflow import overflows

HALF = torch.finfo(torch.float16).max


def test_the_call_in_which_values_overflow_is_kept_with_its_data(
    debug: Debug, captured: Read, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.tensor([1.0, 300.0], dtype=torch.float16)
    debugger = debug("overflow_check")
    debugger.start()
    y = x + 1
    y.mul_(y)
    y.exp()
    debugger.stop()

    data = captured().data
    assert list(data) == ["Tensor.mul_.0.forward"]
    record = data["Tensor.mul_.0.forward"]
    before = captured().tensor(record["input_args"][0]["data_name"])
    assert torch.equal(before, x + 1)
    assert captured().tensor(record["output"][0]["data_name"])[1] == math.inf
    assert captured().json("stack.json")["0"][0] == ["Tensor.mul_.0.forward"]
    assert "[overflow 1 times]: Tensor.mul_.0.forward" in caplog.text


def test_recording_ends_after_the_number_asked_for(debug: Debug, captured: Read) -> None:
    x = torch.tensor([200.0])
    debugger = debug("overflow_check", section={"overflow_nums": 2})
    debugger.start()
    for _ in range(4):
        torch.exp(x)
    debugger.stop()

    assert list(captured().data) == ["Torch.exp.0.forward", "Torch.exp.1.forward"]


def test_bad_values_that_entered_are_not_the_fault_of_the_call(
    debug: Debug, captured: Read
) -> None:
    debugger = debug("overflow_check", section={"overflow_nums": -1})
    debugger.start()
    torch.exp(torch.tensor([math.inf, 1.0]))
    torch.ones(2, 2).masked_fill(torch.eye(2).bool(), -math.inf)
    torch.full((2,), HALF, dtype=torch.float16)
    torch.clamp(torch.ones(2), min=torch.finfo(torch.float32).min)
    torch.empty(4)
    debugger.stop()

    assert captured().data == {}


def test_gradients_that_overflow_are_found(debug: Debug, captured: Read) -> None:
    x = torch.tensor([0.0], requires_grad=True)
    debugger = debug("overflow_check")
    debugger.start()
    torch.sqrt(x).sum().backward()
    debugger.stop()

    record = captured().data["Torch.sqrt.0.backward"]
    assert record["output"][0]["Max"] == math.inf
    assert captured().tensor(record["output"][0]["data_name"]) == math.inf


def test_modules_that_overflow_are_found(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Softsign())
    with torch.no_grad():
        model[0].weight.fill_(1e38)
        model[0].bias.fill_(0)
    debugger = debug("overflow_check", "mix")
    debugger.start(model)
    model(torch.tensor([100.0]))
    debugger.stop()

    assert list(captured().data) == ["Functional.linear.0.forward"]


def test_a_saturated_output_counts_as_overflow() -> None:
    def entry(high: float) -> dict[str, object]:
        return {"dtype": "torch.float16", "Max": high, "Min": 0.0, "type": "torch.Tensor"}

    assert overflows({"input_args": [entry(300.0)], "output": [entry(HALF)]})
    assert not overflows({"input_args": [entry(HALF)], "output": [entry(HALF)]})
    assert not overflows({"input_args": [entry(300.0)], "output": [entry(HALF / 2)]})


def test_stop_and_start_do_not_lose_the_count(debug: Debug, captured: Read) -> None:
    debugger = debug("overflow_check")
    for _ in range(2):
        debugger.start()
        torch.exp(torch.tensor([200.0]))
        debugger.stop()

    assert list(captured().data) == ["Torch.exp.0.forward"]
