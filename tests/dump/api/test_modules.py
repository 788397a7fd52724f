"""Levels L0 and mix: modules, their gradients, and those of parameters."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from api_captures import Captured, Debug, Read
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.checkpoint import checkpoint

from ait_llm.dump.api import tensor_files


def entry_of(captured: Captured, name: str, key: str, index: int = 0) -> torch.Tensor:
    """The saved tensor of one item of a record."""
    return captured.tensor(captured.data[name][key][index]["data_name"])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x + self.linear(x) * scale


def test_records_are_complete_and_in_order_of_completion(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(Residual(), nn.ReLU())
    debugger = debug("tensor", "L0")
    x = torch.randn(2, 3, requires_grad=True)
    debugger.start(model)
    model(x).sum().backward()
    debugger.stop()

    data = captured().data
    assert list(data) == [
        "Module.0.linear.Linear.forward.0",
        "Module.0.Residual.forward.0",
        "Module.1.ReLU.forward.0",
        "Module.1.ReLU.backward.0",
        "Module.0.linear.Linear.parameters_grad.0",
        "Module.0.linear.Linear.backward.0",
        "Module.0.Residual.backward.0",
    ]
    linear = data["Module.0.linear.Linear.forward.0"]
    assert list(linear) == ["input_args", "input_kwargs", "output", "parameters"]
    assert list(linear["parameters"]) == ["weight", "bias"]
    assert linear["parameters"]["bias"]["data_name"] == (
        "Module.0.linear.Linear.forward.0.parameters.bias.pt"
    )
    assert captured().json("construct.json")["Module.0.linear.Linear.forward.0"] == (
        "Module.0.Residual.forward.0"
    )


def test_gradients_of_a_module_are_those_of_the_module_alone(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(Residual())
    linear = model[0].linear
    x = torch.randn(2, 3, requires_grad=True)
    debugger = debug("tensor", "L0")
    debugger.start(model)
    (model(x) ** 2).sum().backward()
    debugger.stop()

    arriving = 2 * (x + linear(x)).detach()
    read = captured()
    backward = "Module.0.linear.Linear.backward.0"
    torch.testing.assert_close(entry_of(read, backward, "input"), arriving)
    torch.testing.assert_close(entry_of(read, backward, "output"), arriving @ linear.weight)
    # The same tensor went also around the linear layer; that is part of the outer module only.
    torch.testing.assert_close(
        entry_of(read, "Module.0.Residual.backward.0", "output"),
        arriving + arriving @ linear.weight,
    )
    grads = read.data["Module.0.linear.Linear.parameters_grad.0"]
    saved = {key: read.tensor(value[0]["data_name"]) for key, value in grads.items()}
    torch.testing.assert_close(saved["weight"], linear.weight.grad)
    torch.testing.assert_close(saved["bias"], linear.bias.grad)


def test_in_place_operations_inside_and_behind_modules_work(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3))
    x = torch.randn(2, 3)
    expected = model(x).mul(2).sum()
    expected.backward()
    grad = model[0].weight.grad.clone()
    model.zero_grad()
    debugger = debug("tensor", "mix")
    debugger.start(model)
    y = model(x)
    y.mul_(2)
    y.sum().backward()
    debugger.stop()

    assert torch.equal(y.sum(), expected)
    assert torch.equal(model[0].weight.grad, grad)
    assert "Module.1.ReLU.backward.0" in captured().data
    assert torch.equal(
        entry_of(captured(), "Module.2.Linear.backward.0", "input"), torch.full((2, 3), 2.0)
    )


def test_module_that_changes_its_input_has_at_least_the_gradients_that_arrive(
    debug: Debug, captured: Read
) -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2)

    model = nn.Sequential(nn.Linear(2, 2), Doubles())
    debugger = debug("statistics", "L0")
    debugger.start(model)
    model(torch.ones(2)).sum().backward()
    debugger.stop()

    record = captured().data["Module.1.Doubles.backward.0"]
    assert record["input"][0]["Max"] == 1.0
    assert record["output"] == [None]


def test_module_that_returns_what_it_got_has_equal_gradients(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.Identity())
    debugger = debug("tensor", "L0")
    x = torch.ones(3, requires_grad=True)
    debugger.start(model)
    (model(x) * 3 + x).sum().backward()
    debugger.stop()

    for key in ("input", "output"):
        found = entry_of(captured(), "Module.0.Identity.backward.0", key)
        assert torch.equal(found, torch.full((3,), 3.0))


class Pair(NamedTuple):
    hidden: torch.Tensor
    weights: torch.Tensor


class Named(nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x * 2, x * 3)


def test_namedtuple_stays_one_and_all_its_fields_are_recorded(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(Named())
    x = torch.ones(2, requires_grad=True)
    debugger = debug("tensor", "L0")
    debugger.start(model)
    result = model(x)
    (result.hidden + result.weights).sum().backward()
    debugger.stop()

    assert isinstance(result, Pair)
    data = captured().data
    assert len(data["Module.0.Named.forward.0"]["output"]) == 2
    assert len(data["Module.0.Named.backward.0"]["input"]) == 2


def test_module_with_a_deprecated_backward_hook_is_recorded_too(
    debug: Debug, captured: Read
) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    called = []
    model[0].register_backward_hook(lambda *_: called.append(True))
    debugger = debug("statistics", "L0")
    debugger.start(model)
    with pytest.warns(FutureWarning, match="non-full backward hook"):
        model(torch.ones(2, requires_grad=True)).sum().backward()
    debugger.stop()

    assert called == [True]
    assert "Module.0.Linear.backward.0" in captured().data


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_calls_are_recorded_under_the_next_number(
    debug: Debug, captured: Read, reentrant: bool
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = torch.ones(2, requires_grad=True)
    debugger = debug("statistics", "mix")
    debugger.start(model)
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    debugger.stop()

    data = captured().data
    assert {"Module.0.Linear.forward.0", "Module.0.Linear.forward.1"} <= set(data)
    assert {"Functional.linear.0.forward", "Functional.linear.1.forward"} <= set(data)
    number = 1 if reentrant else 0
    assert f"Module.0.Linear.backward.{number}" in data
    assert "Module.0.Linear.parameters_grad.0" in data


def test_gradients_that_accumulate_are_recorded_for_each_pass(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    debugger = debug("tensor", "L0")
    debugger.start(model)
    for scale in (1, 3):
        (model(torch.ones(1, 2)) * scale).sum().backward()
    debugger.stop()

    first, second = (
        captured().tensor(f"Module.1.Linear.parameters_grad.{n}.bias.pt") for n in range(2)
    )
    assert torch.equal(first * 3, second)


def test_frozen_parameters_and_unused_ones_do_not_hold_a_record_back(
    debug: Debug, captured: Read
) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Parameter(torch.ones(2))
            self.unused = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.used

    model = nn.Sequential(Half(), nn.Linear(2, 2))
    model[1].bias.requires_grad_(False)
    debugger = debug("statistics", "L0")
    debugger.start(model)
    model(torch.ones(2)).sum().backward()
    debugger.stop()

    data = captured().data
    assert list(data["Module.0.Half.parameters_grad.0"]) == ["used"]
    assert list(data["Module.1.Linear.parameters_grad.0"]) == ["weight"]


def test_calls_of_the_optimizer_and_of_clipping_have_their_own_parents(
    debug: Debug, captured: Read
) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    debugger = debug("statistics", "mix")
    debugger.start(model)
    model(torch.ones(2)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    optimizer.step()
    debugger.stop()

    construct = captured().json("construct.json")
    assert construct["Tensor.add_.0.forward"] == "optimizer"
    assert construct["optimizer"] is None
    assert "clip_grad" in construct.values()
    assert construct["Functional.linear.0.forward"] == "Module.0.Linear.forward.0"
    assert construct["Functional.linear.0.backward"] == "Module.0.Linear.backward.0"


def test_several_models_are_numbered(debug: Debug, captured: Read) -> None:
    models = [nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU())]
    debugger = debug("statistics", "L0")
    debugger.start(models)
    for model in models:
        model(torch.ones(1))
    debugger.stop()

    assert list(captured().data) == ["Module.0.0.ReLU.forward.0", "Module.1.0.ReLU.forward.0"]


def test_a_matching_module_opens_everything_inside_it(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(Residual(), nn.ReLU())
    debugger = debug("statistics", "mix", section={"list": ["Residual"]})
    debugger.start(model)
    model(torch.ones(1, 3))
    debugger.stop()

    assert list(captured().data) == [
        "Functional.linear.0.forward",
        "Module.0.linear.Linear.forward.0",
        "Tensor.__mul__.0.forward",
        "Tensor.__add__.0.forward",
        "Module.0.Residual.forward.0",
    ]


def test_scope_of_modules_ends_with_the_end_of_the_last(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.Linear(3, 3), Residual(), nn.ReLU())
    scope = ["Module.1.Residual.forward.0", "Module.1.Residual.forward.0"]
    debugger = debug("statistics", "L0", section={"scope": scope})
    debugger.start(model)
    model(torch.ones(1, 3))
    debugger.stop()

    assert list(captured().data) == [
        "Module.1.linear.Linear.forward.0",
        "Module.1.Residual.forward.0",
    ]


def test_token_range_counts_forward_passes(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.ReLU())
    debugger = debug("statistics", "mix")
    debugger.start(model, token_range=[1, 2])
    for _ in range(4):
        model(torch.ones(1))
    debugger.stop()

    assert sum(name.startswith("Functional") for name in captured().data) == 2


def test_one_module_is_recorded_under_a_name_of_its_own(debug: Debug, captured: Read) -> None:
    from ait_llm.dump.api import module_dump, module_dump_end

    block = Residual()
    debug("statistics", "L1")
    module_dump(block, "attention")
    block(torch.ones(1, 3))
    module_dump_end()
    block(torch.ones(1, 3))

    assert list(captured().data) == ["Module.attention.linear.Linear.forward.0"]
    assert not block.linear._forward_hooks


def test_one_element_that_was_cut_out_of_a_row_is_written_without_native_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "native_kernels", lambda: None)
    one = torch.arange(12).view(1, 12)[:, -1]
    assert one.stride() == (12,)
    tensor_files.write_plain(one, str(tmp_path / "one.pt"))
    assert torch.load(tmp_path / "one.pt", weights_only=True).tolist() == [11]


def test_a_model_whose_hooks_go_in_the_middle_of_its_call_runs_on(debug: Debug) -> None:
    debugger = debug(level="L0")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.ones(2, 4)
    expected = model(x)
    debugger.start(model)
    first = register_module_forward_hook(lambda *_: debugger.stop())  # runs before those of a model
    try:
        assert torch.equal(model(x), expected)
    finally:
        first.remove()
