"""Operators inside graphs of torch.compile, captured by taps around them in the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import calls, ledger_lines, opened, values
from compiled_models import Llama
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.opcheck.case import NoCase
from ait_llm.opcheck.cases import case_of

pytestmark = pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs torch 2.4")
IDS = torch.tensor([1, 5, 3, 9, 2])


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def captured(folder: Path, model: nn.Module, call: Any, x: Tensor, **config: Any) -> Tensor:
    settings = DumpConfig(str(folder), operators=True, **config)
    with register_hook(model, settings), torch.no_grad():
        found: Tensor = call(x)
    return found


def both(folder: Path, model: nn.Module, x: Tensor, **config: Any) -> None:
    """The same model captured eagerly, and compiled."""
    expected = captured(folder / "eager", model, model, x, **config)
    compiled = torch.compile(model, backend="aot_eager")
    assert torch.equal(captured(folder / "mine", model, compiled, x, **config), expected)


def saved(folder: Path) -> dict[str, dict[str, Tensor]]:
    return {name: values(call) for name, call in calls(opened(folder)).items()}


def assert_same(folder: Path) -> None:
    mine, eager = saved(folder / "mine"), saved(folder / "eager")
    assert mine.keys() == eager.keys()
    for name, expected in eager.items():
        assert mine[name].keys() == expected.keys(), name
        for stem, value in expected.items():
            assert torch.equal(mine[name][stem], value), (name, stem)


def lines(folder: Path) -> list[tuple[str, Any]]:
    """Names of the calls in their order, with the constants that each was given."""
    found = sorted((each for each in ledger_lines(folder) if "op" in each), key=_order)
    return [(each["op"], each.get("values")) for each in found]


def _order(line: dict[str, Any]) -> int:
    return int(line.get("order", -1))


def test_operators_of_a_compiled_llama_are_those_of_an_eager_one(tmp_path: Path) -> None:
    both(tmp_path, Llama().eval(), IDS)
    assert_same(tmp_path)
    assert {"0:root.qkv", "0:root.qkv.aten.mm.default"} <= set(saved(tmp_path / "mine"))
    assert lines(tmp_path / "mine") == lines(tmp_path / "eager")


class Broken(nn.Module):
    """Two graphs, with operators between them that no graph has."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(_between(self.first(x)))


@torch.compiler.disable
def _between(x: Tensor) -> Tensor:
    return x.cos().sin()


def test_operators_between_two_graphs_are_captured_once(tmp_path: Path) -> None:
    both(tmp_path, Broken(), torch.randn(3, 4))
    mine, eager = saved(tmp_path / "mine"), saved(tmp_path / "eager")
    assert mine.keys() == eager.keys()
    assert torch.equal(
        mine["0:root.aten.sin.default"]["output"], eager["0:root.aten.sin.default"]["output"]
    )


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        y.add_(1)
        return torch.where(y > 0, y, float("-inf")).clamp(max=2).to(torch.float64)


def test_what_an_operator_changes_in_place_is_recorded_as_it_was(tmp_path: Path) -> None:
    both(tmp_path, InPlace(), torch.randn(3, 4))
    assert_same(tmp_path)
    assert lines(tmp_path / "mine") == lines(tmp_path / "eager")


def test_operators_alone_have_no_values_of_modules(tmp_path: Path) -> None:
    both(tmp_path, InPlace(), torch.randn(3, 4), modules=False)
    assert_same(tmp_path)
    assert "0:root.inner" not in saved(tmp_path / "mine")
    assert "0:root.inner.aten.addmm.default" in saved(tmp_path / "mine")


def test_own_code_in_a_graph_is_that_of_the_module_and_not_of_its_members(tmp_path: Path) -> None:
    selected = {"module_names": ["root"], "own_code": True, "modules": False}
    both(tmp_path, InPlace(), torch.randn(3, 4), **selected)
    assert_same(tmp_path)
    assert "0:root.aten.addmm.default" not in saved(tmp_path / "mine")


def assert_not_computed_again(folder: Path) -> None:
    """Nothing is said of operators whose kernels keep more digits than their values."""
    found = [each for each in calls(opened(folder)).values() if each.type.startswith("aten.")]
    assert found
    assert all(isinstance(case_of(each), NoCase) for each in found)


class Fused(nn.Module):
    """What Inductor makes one kernel of, with values that it never rounds to their type."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x) * 1.7) + x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_computes_the_same_bits_with_and_without_taps(tmp_path: Path) -> None:
    model, options = Fused(), {"cpp_cache_precompile_headers": False}
    torch.manual_seed(0)
    x = torch.randn(4, 32).bfloat16()

    def compiled() -> Any:
        torch._dynamo.reset()
        return torch.compile(model, backend="inductor", fullgraph=True, options=options)

    with torch.no_grad(), torch._inductor.config.patch(fx_graph_cache=False):
        expected = compiled()(x)
        found = captured(tmp_path, model, compiled(), x)
        assert not torch.equal(model(x), expected)
    assert torch.equal(found, expected)
    inside = saved(tmp_path)
    tanh = inside["0:root.aten.tanh.default"]
    torch.testing.assert_close(tanh["output"], torch.tanh(tanh["input_0"]))
    assert torch.equal(inside["0:root"]["output"], expected)
    assert_not_computed_again(tmp_path)
