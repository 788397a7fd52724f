"""Which of a program's modules are models, and what is recorded of the call that shows one."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_hooks

from ait_llm.core import StepRange
from ait_llm.dump.inject import root_finder
from ait_llm.dump.inject.models import (
    generating_models,
    is_model,
    outermost_owner,
    prompt_length,
    unwrapped,
)
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.pytorch.session import sessions
from ait_llm.dumps import open_dump
from ait_llm.dumps.operations import Operation

ALL = StepRange(((0, 1 << 40),))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)

    def forward(self, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
        return self.inner(x) + shift


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(x)

    def generate(self, prompt: torch.Tensor) -> torch.Tensor:
        return self(self.first(prompt))


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[root_finder.RootFinder]:
    """Hooks on all modules, taken off again."""
    tables = (torch_hooks._global_forward_pre_hooks, torch_hooks._global_forward_hooks)
    before = [dict(table) for table in tables]
    called = dict(torch_hooks._global_forward_hooks_always_called)
    monkeypatch.setattr(nn.Module, "compile", nn.Module.compile)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    made = root_finder.RootFinder(TorchSettings(output=tmp_path, steps=ALL))
    made.install()
    yield made
    sessions.close_all()
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    torch_hooks._global_forward_hooks_always_called.clear()
    torch_hooks._global_forward_hooks_always_called.update(called)


def calls(folder: Path) -> dict[tuple[str, int], Operation]:
    sessions.close_all()
    return {
        (call.name, call.step): call
        for call in open_dump(folder).operations()
        if isinstance(call, Operation)
    }


def saved(call: Operation, stem: str) -> torch.Tensor:
    (tensor,) = [tensor for tensor in call.tensors if tensor.stem == stem]
    return torch.load(tensor.file)


@pytest.mark.usefixtures("finder")
def test_the_first_call_is_recorded_with_positional_and_keyword_arguments(tmp_path: Path) -> None:
    model, x = Block(), torch.randn(1, 2)
    expected = [model(x, shift=0.5), model(x)]
    found = calls(tmp_path)
    assert set(found) == {(path, step) for path in ("root", "root.inner") for step in (0, 1)}
    assert torch.equal(saved(found["root", 0], "input_0"), x)
    assert found["root", 0].params == {"input_shift": 0.5}
    for step in (0, 1):
        assert torch.equal(saved(found["root", step], "output"), expected[step])


@pytest.mark.usefixtures("finder")
def test_first_calls_on_two_threads_at_once_are_both_recorded(tmp_path: Path) -> None:
    model, together = Block(), threading.Barrier(2)

    def meet(module: nn.Module, _: Any) -> None:
        if module is model:
            together.wait(60)

    handle = torch_hooks.register_module_forward_pre_hook(meet)
    torch_hooks._global_forward_pre_hooks.move_to_end(handle.id, last=False)  # before ours
    threads = [threading.Thread(target=model, args=(torch.full((1, 2), 1.0 + n),)) for n in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = calls(tmp_path)
    roots = [call for (name, _), call in found.items() if name == "root"]
    assert sorted(float(saved(call, "input_0")[0, 0]) for call in roots) == [1.0, 2.0]


@pytest.mark.usefixtures("finder")
def test_single_modules_and_losses_are_not_recorded(tmp_path: Path) -> None:
    nn.Linear(2, 2)(torch.ones(1, 2))
    nn.Sequential(nn.ReLU(), nn.Softmax(0))(torch.ones(1, 2))
    nn.MSELoss()(torch.ones(1), torch.ones(1))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("finder")
def test_a_module_that_raises_does_not_hide_the_next_model(tmp_path: Path) -> None:
    model = Block()
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    model(torch.ones(1, 2))
    assert ("root", 1) in calls(tmp_path)


@pytest.mark.usefixtures("finder")
def test_a_part_that_is_called_first_is_recorded_as_a_part(tmp_path: Path) -> None:
    model, x = Model(), torch.randn(1, 2)
    features = [model.first(x, shift=step) for step in (1.0,)]
    model(features[0])
    features.append(model.first(x))
    model(features[1])
    found = calls(tmp_path)
    assert {step for _, step in found} == {0, 1}
    for step in (0, 1):
        assert torch.equal(saved(found["root.first", step], "output"), features[step])
        assert ("root.second", step) in found
    assert found["root.first", 0].params == {"input_shift": 1.0}


@pytest.mark.usefixtures("finder")
def test_parts_of_a_model_that_is_never_called_itself_have_steps(tmp_path: Path) -> None:
    model = Model()
    for _ in range(3):
        model.second(model.first(torch.ones(1, 2)))
    found = calls(tmp_path)
    expected = {("root.first", step) for step in range(3)} | {
        ("root.second", step) for step in range(3)
    }
    assert expected <= set(found)


@pytest.mark.usefixtures("finder")
def test_an_encoder_that_generate_runs_first_shares_the_step_of_the_prefill(
    tmp_path: Path,
) -> None:
    model = Model()
    model.generate(torch.ones(1, 2))
    assert {name for name, step in calls(tmp_path) if step == 0} >= {"root", "root.first"}


@pytest.mark.usefixtures("finder")
def test_recomputation_in_a_backward_pass_is_no_step(tmp_path: Path) -> None:
    class Checkpointed(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(self.second, x, use_reentrant=False)

    model = Checkpointed()
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    assert {step for name, step in calls(tmp_path) if name == "root"} == {0, 1}
    assert {step for _, step in calls(tmp_path)} == {0, 1}


def test_a_failure_of_ours_is_said_and_is_not_the_programs(
    finder: root_finder.RootFinder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(root_finder, "CaptureSession", fail)
    model, x = Block(), torch.ones(1, 2)
    assert torch.equal(model(x), model.inner(x))
    assert caplog.messages == ["Block is not captured: OSError: [Errno 28] No space left on device"]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.usefixtures("finder")
def test_a_module_compiled_in_place_whose_graph_breaks_is_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    # Code that cannot be compiled runs as before, with all hooks.
    monkeypatch.setattr(torch, "compile", lambda function: lambda *a, **k: function(*a, **k))
    model, x = Model(), torch.randn(1, 2)
    (model.second if nested else model).compile()
    expected = [model(x), model(x)]
    found = calls(tmp_path)
    paths = ("root", "root.second", "root.second.inner")
    assert set(found) == {(path, step) for path in paths for step in (0, 1)}
    assert {call.call for call in found.values()} == {0}
    for step in (0, 1):
        for path in paths[:2]:
            assert torch.equal(saved(found[path, step], "output"), expected[step])
            assert torch.equal(saved(found[path, step], "input_0"), x)


@pytest.mark.usefixtures("finder")
def test_a_compiled_module_that_raises_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: lambda *a, **k: function(*a, **k))
    model = Model()
    model.compile()
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    model(torch.ones(1, 2))
    Block()(torch.ones(1, 2))
    found = calls(tmp_path)
    assert {step for name, step in found if name == "root"} == {0, 1}
    assert ("root1", 0) in found


@pytest.mark.usefixtures("finder")
def test_a_captured_model_can_be_copied(tmp_path: Path) -> None:
    model = Model()
    model.generate(torch.ones(1, 2))
    copied = copy.deepcopy(model)
    assert torch.equal(copied.generate(torch.ones(1, 2)), model.generate(torch.ones(1, 2)))
    assert {name for name, _ in calls(tmp_path)} >= {"root", "root1"}


@pytest.mark.usefixtures("finder")
def test_names_of_a_wrapped_model_are_those_of_the_model(tmp_path: Path) -> None:
    nn.DataParallel(Block())(torch.ones(1, 2))
    assert {name for name, _ in calls(tmp_path)} == {"root", "root.inner"}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Block(), True),
        (nn.Linear(2, 2), False),
        (nn.Sequential(nn.ReLU()), False),
        (nn.CrossEntropyLoss(), False),
        (nn.Sequential(nn.BatchNorm1d(2, affine=False)), True),
    ],
)
def test_models_have_members_and_weights(module: nn.Module, expected: bool) -> None:
    assert is_model(module) is expected


def test_a_replica_is_not_a_model() -> None:
    replica = Block()._replicate_for_data_parallel()
    replica._is_replica = True
    assert not is_model(replica)


def test_the_outermost_owner_is_found_through_lists_but_not_through_wrappers() -> None:
    model = Model()
    outer = nn.Sequential(nn.ModuleList([model]))
    wrapper = nn.DataParallel(outer)
    assert outermost_owner(model.first.inner) is outer
    assert outermost_owner(outer) is outer
    assert unwrapped(wrapper) is outer
    lone = Block()
    assert outermost_owner(lone) is lone


def test_the_running_generate_tells_the_model_and_its_prompt() -> None:
    class Assisted(Block):
        def generate(self, inputs: torch.Tensor, helper: Any) -> Any:
            return helper.generate(inputs) if helper else generating_models(sys._getframe())

    class Helper(Block):
        def generate(self, inputs: torch.Tensor) -> Any:
            return generating_models(sys._getframe())

    class Adapter(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def generate(self, *arguments: Any) -> Any:
            return self.model.generate(*arguments)

    main, helper = Assisted(), Helper()
    found = Adapter(main).generate(torch.zeros(1, 5), helper)
    assert [model for model, _ in found] == [main, helper]
    assert prompt_length(main, found[0][1]) == 5
    assert prompt_length(main, {"kwargs": {"inputs_embeds": torch.zeros(1, 3, 8)}}) == 3
    assert prompt_length(main, {}) is None
