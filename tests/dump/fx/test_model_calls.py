"""In which call of the model a graph ran, as the capture writes it down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm.dump import fx_backend
from ait_llm.dump.fx.model_calls import model_call
from ait_llm.dump.fx.session import sessions
from ait_llm.dumps import open_dump
from ait_llm.program.compiled import executions_of
from ait_llm.program.compiled_calls import by_call


class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() + x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, x: Tensor) -> Tensor:
        # what is multiplied here is another value for the second layer's graphs
        return self.second(self.first(x) * 3)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def sizes(folder: Path) -> list[int]:
    """How many graphs ran in each call of the model."""
    sessions._open.pop(folder).close("exit")
    dump = open_dump(folder)
    return [len(call) for call in by_call(executions_of(dump, dump.processes[0]))]


def test_graphs_between_breaks_ran_in_one_call(tmp_path: Path) -> None:
    layer = torch.compile(Layer(), backend=fx_backend.capture(tmp_path))
    for _ in range(3):
        layer(torch.randn(4))
    assert sizes(tmp_path) == [2, 2, 2]


def test_layers_that_are_compiled_alone_ran_in_the_call_of_their_model(tmp_path: Path) -> None:
    model = Model()
    for layer in (model.first, model.second):
        layer.compile(backend=fx_backend.capture(tmp_path))
    for _ in range(2):
        model(torch.randn(4))
    assert sizes(tmp_path) == [4, 4]


def test_a_backward_pass_is_of_the_call_that_it_goes_back_through(tmp_path: Path) -> None:
    model = torch.compile(
        nn.Sequential(nn.Linear(4, 4), nn.Tanh()), backend=fx_backend.capture(tmp_path)
    )
    for _ in range(2):
        model(torch.randn(3, 4)).sum().backward()
    assert sizes(tmp_path) == [2, 2]


def test_a_call_is_known_again_while_it_runs_and_never_after() -> None:
    class Asking(nn.Module):
        def forward(self) -> list[int | None]:
            return [model_call(), model_call()]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Asking()

        def forward(self) -> list[int | None]:
            return [*self.inner(), *self.inner()]

    model = Outer()
    found = [model() for _ in range(50)]
    assert all(len(set(call)) == 1 for call in found)
    assert len({call[0] for call in found}) == 50


def test_outside_of_modules_there_is_no_call() -> None:
    assert model_call() is None
