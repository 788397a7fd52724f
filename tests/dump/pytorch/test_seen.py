"""Tensors that are passed on: what is known of them holds while they are what they were."""

from __future__ import annotations

import csv
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from statistics_library import built_kernels
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump.pytorch import seen, statistics
from ait_llm.dump.pytorch.identity import identity_of, mark_of
from ait_llm.dump.pytorch.seen import SeenTensors
from ait_llm.dump.pytorch.statistics import Cells, tensor_statistics

pytestmark = pytest.mark.native


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    built = built_kernels()
    for module in (seen, statistics):
        monkeypatch.setattr(module, "native_kernels", lambda: built)


@pytest.fixture(params=[torch.inference_mode, torch.no_grad])
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    context: AbstractContextManager[Any] = request.param()
    with context:
        yield


def remembered(tensor: Tensor) -> SeenTensors:
    cells = tensor_statistics(tensor)
    assert isinstance(cells, Cells)
    identity = identity_of(tensor, numbers=cells.numbers)
    assert identity is not None
    known = SeenTensors()
    known.remember(tensor, mark_of(tensor.untyped_storage()), cells.numbers, cells, identity)
    return known


def counted(rows: int = 4, columns: int = 6) -> Tensor:
    return torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, 1:4], lambda x: x.T])
@pytest.mark.usefixtures("mode")
def test_a_tensor_that_is_passed_on_is_known(view: Callable[[Tensor], Tensor]) -> None:
    tensor = view(counted())
    found = remembered(tensor).find(tensor)
    assert found is not None
    expected = tensor_statistics(tensor)
    assert not isinstance(expected, str)
    assert found.cells() == expected()
    assert found.identity == identity_of(tensor, numbers=found.numbers)


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "an operator in place": lambda x: x.mul_(2),
    "another view": lambda x: x.view(-1)[3].fill_(7),
    "memory behind torch": lambda x: x.numpy().__setitem__((2, 2), 9),
    "another shape": lambda x: x.unsqueeze_(0),
    "turned": lambda x: x.t_(),
    "other memory": lambda x: x.set_(counted()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("mode")
def test_a_tensor_that_was_changed_is_not_known(change: str) -> None:
    tensor = counted()
    known = remembered(tensor)
    CHANGES[change](tensor)
    assert known.find(tensor) is None


@pytest.mark.usefixtures("mode")
def test_another_object_is_another_tensor() -> None:
    tensor = counted()
    known = remembered(tensor)
    assert known.find(tensor.view(4, 6)) is None


@pytest.mark.usefixtures("mode")
def test_nothing_is_kept_alive_and_a_later_object_in_its_place_is_not_known() -> None:
    tensor = counted()
    known = remembered(tensor)
    entry = known._objects[id(tensor)]
    reference = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert reference() is None
    later = counted()
    known._objects[id(later)] = entry
    assert known.find(later) is None


@pytest.mark.usefixtures("mode")
def test_a_new_step_knows_nothing() -> None:
    tensor = counted()
    known = remembered(tensor)
    known.forget()
    assert known.find(tensor) is None


class Adds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


class Passes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.adds, self.last = nn.Identity(), Adds(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.last(self.adds(self.first(x * 1.0)))
        return last


@pytest.mark.usefixtures("mode")
def test_each_row_has_the_numbers_of_its_time(tmp_path: Path) -> None:
    model = Passes()
    with register_hook(model, DumpConfig(str(tmp_path), mode="stats", token_range=[0])):
        model(counted())
    [table] = tmp_path.rglob("statistics.csv")
    with table.open(newline="") as file:
        highest = {f"{row['module']} {row['tensor']}": row["max"] for row in csv.DictReader(file)}
    assert highest == {
        "root input_0": "23.0",
        "root.first input_0": "23.0",
        "root.first output": "23.0",
        "root.adds input_0": "23.0",
        "root.adds output": "24.0",
        "root.last input_0": "24.0",
        "root.last output": "24.0",
        "root output": "24.0",
    }
