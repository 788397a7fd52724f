"""Two captures of one graph, or of nearly one: names are believed as far as they are the graph's.

Programs that differ by an operation that changes nothing have equal values in all places that
answer each other, and other values elsewhere; so every wrong pair shows in its numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from two_captures import capture_calls, made

from ait_llm import compare
from ait_llm.core import Verdict
from ait_llm.dump import fx_backend
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dump.fx.session import sessions
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.programs import match_programs
from ait_llm.match.programs.anchors.agreement import Agreement
from ait_llm.match.scenario import find_scenario
from ait_llm.program.common_nodes import CommonNode
from tests.match.programs.checking import matches_of, wrong_numbers

_WIDTH = 12


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """A debugger of its own for each test."""
    PrecisionDebugger._reset()
    yield
    PrecisionDebugger._reset()


class Blocks(nn.Module):
    """Three gated blocks with residual sums; ``extra`` names where one has an idle operation more.

    Gate and up projections are of one shape, and so are all blocks.
    """

    def __init__(self, extra: str = "") -> None:
        super().__init__()
        self.gate = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        if self.extra == "first":
            x = x * 1.0 + 0.0
        for number, (gate, up) in enumerate(zip(self.gate, self.up, strict=True)):
            y = functional.rms_norm(x, (_WIDTH,), None, 1e-6)
            if self.extra == "middle" and number == 1:
                y = (y @ torch.eye(_WIDTH)) * 1.0
            x = x + torch.tanh(gate(y)) * up(y) * 0.5
        return x * 1.0 + 0.0 if self.extra == "last" else x


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@cache
def _nodes(folder: Path, extra: str) -> Path:
    torch._dynamo.reset()
    torch.manual_seed(0)
    place = folder / f"nodes_{extra}"
    model = Blocks(extra)
    with torch.no_grad():
        torch.compile(model, backend=fx_backend.capture(place))(torch.randn(5, _WIDTH))
    torch._dynamo.reset()
    sessions._open.pop(place).close("exit")
    return place


def _matches(golden: Path, mine: Path) -> list[Match]:
    [pair] = pair_runs(find_scenario(golden, mine)).pairs
    return matches_of(match_programs(pair.golden, pair.mine, MatchOptions()))


def _without(dump: Path, folder: Path, seed: int, share: float) -> Path:
    """A copy without some nodes, as a filter leaves it; the graph is still known."""
    draw = random.Random(seed)
    kept: dict[str, bool] = {}
    for file in sorted(each for each in dump.rglob("*") if each.is_file()):
        node = file.name.partition("-")[0]
        if file.suffix != ".npy" or kept.setdefault(node, draw.random() < share):
            copy = folder / file.relative_to(dump)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.hardlink_to(file)
    return folder


@pytest.mark.parametrize("extra", ["first", "middle", "last"])
@pytest.mark.parametrize("turned", [False, True])
def test_names_that_shifted_pair_nothing_and_all_nodes_are_found(
    folder: Path, extra: str, turned: bool
) -> None:
    sides = _nodes(folder, ""), _nodes(folder, extra)
    found = _matches(*(sides[::-1] if turned else sides))
    assert wrong_numbers(found, limit=1e-6) == []
    plain = "mine" if turned else "golden"
    held = {getattr(each, plain).record.op for each in found}
    [pair] = pair_runs(find_scenario(sides[0], sides[0])).pairs
    assert {each.name for each in pair.golden.operations} == held


@pytest.mark.parametrize("extra", ["", "first", "middle"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("graph", [True, False])
def test_of_filtered_dumps_no_pair_is_wrong(
    folder: Path, tmp_path: Path, extra: str, seed: int, graph: bool
) -> None:
    """Also where no file tells the graph, as in dumps of torchair."""
    golden = _without(_nodes(folder, ""), tmp_path / "golden", seed, 0.6)
    mine = _without(_nodes(folder, extra), tmp_path / "mine", seed + 10, 0.6)
    if not graph:
        for file in tmp_path.rglob("graph.json"):
            file.unlink()
    found = _matches(golden, mine)
    assert wrong_numbers(found, limit=1e-6) == []
    assert len(found) > 5


def test_a_namesake_with_other_arguments_is_paired_where_its_neighbours_say_so(
    folder: Path, tmp_path: Path
) -> None:
    """The factor 0.5 is another one: the node is the same, and fails."""

    class Scaled(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            for gate, up in zip(self.gate, self.up, strict=True):
                y = functional.rms_norm(x, (_WIDTH,), None, 1e-6)
                x = x + torch.tanh(gate(y)) * up(y) * 0.75
            return x

    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        model = torch.compile(Scaled(), backend=fx_backend.capture(tmp_path))
        model(torch.randn(5, _WIDTH))
    torch._dynamo.reset()
    sessions._open.pop(tmp_path).close("exit")
    report = compare(_nodes(folder, ""), tmp_path)
    assert report.counts[Verdict.SKIPPED] == 0
    first = next(each for each in report.comparisons if each.verdict is Verdict.FAIL)
    assert first.golden is not None
    assert first.golden.op == first.record.op
    assert first.record.op.startswith("mul")


def test_calls_that_were_renumbered_pair_by_what_they_compute(tmp_path: Path) -> None:
    """One side calls ``silu``, ``linear`` and a product once more before its second layer."""
    capture_calls(tmp_path / "plain", made("llama"), level="L1")
    PrecisionDebugger._reset()
    model = made("llama")
    same = torch.eye(model.config.hidden_size)

    def more(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        functional.silu(args[0])
        return (functional.linear(args[0], same) * 1.0, *args[1:])

    model.model.layers[1].register_forward_pre_hook(more)
    capture_calls(tmp_path / "more", model, level="L1")
    found = _matches(tmp_path / "plain", tmp_path / "more")
    assert wrong_numbers(found, limit=1e-4) == []
    linear = {
        (each.golden.record.op, each.mine.record.op)
        for each in found
        if each.golden.record.role == each.mine.record.role == "out"
        and each.golden.record.op.startswith("Functional.linear")
        and each.mine.record.op.startswith("Functional.linear")
    }
    numbers = [(number, number + (number > 6)) for number in range(15)]
    assert linear == {
        (f"Functional.linear.{one}.forward", f"Functional.linear.{other}.forward")
        for one, other in numbers
    }


def _graph(*lines: tuple[str, str, tuple[str, ...]]) -> dict[str, CommonNode]:
    """Nodes of a graph: name, kind, and what it reads."""
    return {
        name: CommonNode(kind, tuple((each, 0) if each else None for each in reads))
        for name, kind, reads in lines
    }


def _agreed(left: dict[str, CommonNode], right: dict[str, CommonNode]) -> Agreement:
    return Agreement(left, right, lambda one, other: True)


_CHAIN = _graph(
    ("mm", "mm", ("", "")),
    ("relu", "relu", ("mm",)),
    ("mm_1", "mm", ("relu", "")),
    ("relu_1", "relu", ("mm_1",)),
)


def test_a_name_that_reads_something_else_on_the_other_side_is_none() -> None:
    shifted = _graph(
        ("mm", "mm", ("", "")),
        ("relu", "relu", ("mm",)),
        ("relu_1", "relu", ("relu",)),
        ("mm_1", "mm", ("relu_1", "")),
        ("relu_2", "relu", ("mm_1",)),
    )
    found = _agreed(_CHAIN, shifted)
    assert not found.is_one
    assert "relu_1" not in found
    assert {"mm", "relu"} <= found.pairs.keys()


def test_a_wire_that_goes_elsewhere_is_an_error_and_no_other_graph() -> None:
    """Nothing else reads what the node should read."""
    wrong = {**_CHAIN, "relu_1": CommonNode("relu", (("mm", 0),))}
    wrong["tanh"] = CommonNode("tanh", (("relu_1", 0),))
    right = {**_CHAIN, "tanh": CommonNode("tanh", (("relu_1", 0),))}
    found = _agreed(right, wrong)
    assert "relu_1" in found
    assert found.confidence("relu_1") < found.confidence("relu")


def test_of_one_graph_names_without_neighbours_are_believed_and_of_two_not() -> None:
    alone = {"exp": CommonNode("exp", (None,))}
    one = {**_CHAIN, **alone}
    assert "exp" in _agreed(one, one)
    swapped = {
        **one,
        "mm_1": CommonNode("mm", (("mm", 0), None)),
        "mm_2": CommonNode("mm", (("relu", 0), None)),
    }
    found = _agreed(one, swapped)
    assert not found.is_one
    assert "exp" not in found
