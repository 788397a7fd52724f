"""Memory that replays of device graphs fill; a device is played here by a list of copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from capture_models import Decoder, calls, ids, ledger_lines, opened, values
from torch import Tensor

from ait_llm import DumpConfig, register_hook
from ait_llm.dump.pytorch import tapped_calls
from ait_llm.dump.pytorch.statistics import NotKept, Reduced, reduced, tensor_statistics
from ait_llm.dump.taps import operator
from ait_llm.dump.taps.replays import Recordings, StaticMemory, watch_graph


class Model:
    """Is told of taps, and remembers what the values were when it was told."""

    def __init__(self, *, numbers_only: bool = False) -> None:
        self.is_tapping = True
        self.wants_numbers_only = numbers_only
        self.told: list[tuple[str, str, dict[str, object], list[str]]] = []
        self.number = operator.register(self, torch.device("cpu"))

    def tapped(
        self, event: str, path: str, values: Sequence[tuple[str, object]], texts: Sequence[str]
    ) -> None:
        now = {
            name: value.clone() if isinstance(value, Tensor) else value for name, value in values
        }
        self.told.append((event, path, now, list(texts)))


class Graph:
    """Runs again what was noted down: the part of a device."""

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []

    def capture_begin(self) -> None:
        self.work.clear()

    def capture_end(self) -> None:
        """Nothing more is noted down."""

    def replay(self) -> None:
        for each in self.work:
            each()


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Recordings:
    found = Recordings(StaticMemory(1 << 20))
    for name in ("capture_begin", "capture_end", "replay"):
        monkeypatch.setattr(Graph, name, vars(Graph)[name])
    if "ait_watched" in vars(Graph):
        monkeypatch.delattr(Graph, "ait_watched")
    watch_graph(Graph, found)
    return found


def record(recordings: Recordings, model: Model, path: str, source: Tensor) -> Graph:
    """A graph with one tap on a value that changes from replay to replay."""
    graph = Graph()
    graph.capture_begin()
    recordings.note(model.number, "leave", path, [("output", source)], ["output_1=None"])
    (place,) = (held for key, held in recordings.memory._held.items() if key[2] == path)

    def copy() -> None:
        found = reduced(source) if model.wants_numbers_only else None
        value = source if found is None else found.numbers
        place[: value.nbytes].view(value.dtype).view(value.shape).copy_(value)

    graph.work.append(copy)
    graph.capture_end()
    return graph


def outputs(model: Model) -> list[Tensor]:
    found = [values["output"] for _, _, values, _ in model.told]
    return [each for each in found if isinstance(each, Tensor)]


def test_nothing_is_told_while_a_graph_is_recorded(recordings: Recordings) -> None:
    model = Model()
    record(recordings, model, "root.a", torch.ones(3))
    assert model.told == []


def test_each_replay_tells_what_it_computed(recordings: Recordings) -> None:
    model, source = Model(), torch.zeros(3)
    graph = record(recordings, model, "root.a", source)
    for number in (1.0, 2.0):
        source.fill_(number)
        graph.replay()
    assert [told[:2] for told in model.told] == [("leave", "root.a")] * 2
    values = [told[2]["output"] for told in model.told]
    assert [value.tolist() for value in values if isinstance(value, Tensor)] == [
        [1.0] * 3,
        [2.0] * 3,
    ]
    assert model.told[0][3] == ["output_1=None"]


def test_graphs_of_several_sizes_share_the_memory_of_the_largest(recordings: Recordings) -> None:
    model = Model()
    sizes = [torch.full((size, 2), float(size)) for size in (8, 4, 1)]
    graphs = [record(recordings, model, "root.a", each) for each in sizes]
    assert recordings.memory.taken == 8 * 2 * 4
    for graph in graphs[::-1]:
        graph.replay()
    assert [len(output) for output in outputs(model)] == [1, 4, 8]
    assert [output[0, 0].item() for output in outputs(model)] == [1, 4, 8]


def test_a_module_that_runs_twice_in_a_graph_has_memory_for_each(recordings: Recordings) -> None:
    model, graph = Model(), Graph()
    graph.capture_begin()
    for number in (1.0, 2.0):
        recordings.note(model.number, "leave", "root.a", [("output", torch.full((2,), number))], [])
    graph.capture_end()
    graph.replay()
    assert [output.tolist() for output in outputs(model)] == [[1, 1], [2, 2]]


def test_memory_is_bounded_and_what_has_none_is_told(recordings: Recordings) -> None:
    model, graph = Model(), Graph()
    recordings.memory.limit = 10
    graph.capture_begin()
    recordings.note(model.number, "leave", "root.a", [("output", torch.ones(8))], [])
    graph.capture_end()
    graph.replay()
    assert isinstance(model.told[0][2]["output"], NotKept)
    assert recordings.memory.taken == 0


def test_statistics_are_computed_in_the_graph_and_keep_six_numbers(recordings: Recordings) -> None:
    model, source = Model(numbers_only=True), torch.zeros(1000, dtype=torch.float64)
    graph = record(recordings, model, "root.a", source)
    assert recordings.memory.taken == 6 * 8
    source.copy_(torch.linspace(-1, 3, 1000))
    graph.replay()
    first = model.told[0][2]["output"]
    source.fill_(7)
    graph.replay()
    assert isinstance(first, Reduced)
    expected = tensor_statistics(torch.linspace(-1, 3, 1000).double())
    text = expected if isinstance(expected, str) else expected()
    for found, number in zip(first().split(",")[2:], text.split(",")[2:], strict=True):
        assert float(found) == pytest.approx(float(number), rel=1e-12)


def test_a_replay_while_the_capture_is_off_tells_nothing(recordings: Recordings) -> None:
    model = Model()
    graph = record(recordings, model, "root.a", torch.ones(3))
    model.is_tapping = False
    graph.replay()
    assert model.told == []
    model.is_tapping = True
    graph.replay()
    assert len(model.told) == 1


def test_a_graph_outlives_its_model(recordings: Recordings) -> None:
    model = Model()
    graph = record(recordings, model, "root.a", torch.ones(3))
    del model
    graph.replay()


def test_hooks_of_a_model_that_is_recorded_as_a_graph_report_each_replay(
    recordings: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tapped_calls, "recordings", recordings)
    model, x = Decoder(1), ids()
    config = DumpConfig(str(tmp_path), token_range=[0, 1])
    with register_hook(model, config), torch.no_grad():
        graph = Graph()
        graph.capture_begin()
        model(x)
        graph.capture_end()
        assert not [line for line in ledger_lines(tmp_path) if "op" in line]
        graph.replay()
        graph.replay()
        head = model.head.weight
    found = calls(opened(tmp_path))
    assert {name for name in found if name.startswith("1:")} == {
        f"1:root{path}"
        for path in ("", ".embed", ".head", ".layers.0", ".layers.0.0", ".layers.0.1")
    }
    with torch.no_grad():
        inside = values(found["1:root.head"])
        assert torch.equal(inside["output"], inside["input_0"] @ head.T)
        assert torch.equal(values(found["1:root"])["output"], model(x))


def test_a_capture_follows_the_graphs_of_devices(tmp_path: Path) -> None:
    with register_hook(Decoder(1), DumpConfig(str(tmp_path))):
        assert "ait_watched" in vars(torch.cuda.CUDAGraph)
