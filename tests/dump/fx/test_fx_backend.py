"""The capturing backend of torch.compile: results unchanged, every node on disk."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ait_llm.dump import fx_backend
from ait_llm.dump.fx import session
from ait_llm.dump.fx.graph_capture import GraphCapture
from ait_llm.dump.fx.session import sessions
from ait_llm.dump.torch_ledger import read_torch_ledger
from ait_llm.dump.torch_summary import torch_losses
from ait_llm.dumps import FxDump, open_dump
from ait_llm.dumps.fx_place import FILE_NAME
from ait_llm.dumps.operations import Operation
from ait_llm.errors import UsageError


class Block(nn.Module):
    """A gated layer with what makes graphs interesting: views, two results, a random operator."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(width, width, bias=False)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, value = self.up(x).chunk(2, -1)
        y = self.drop(nn.functional.silu(gate) * value)
        values, indices = torch.cat([x, self.down(y)], 0).topk(3, dim=-1)
        return values * x.shape[0], indices


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def sealed(folder: Path) -> FxDump:
    """The dump of a capture that has ended."""
    running = sessions._open.pop(folder, None)
    if running is not None:
        running.close("exit")
    dump = open_dump(folder)
    assert isinstance(dump, FxDump)
    return dump


def nodes(folder: Path) -> list[Operation]:
    return list(sealed(folder).operations())


def graph(folder: Path, number: int = 1) -> dict[str, Any]:
    path = folder / f"ait_dump/fx_tensors/worldsize1_global_rank0/graph_{number}/graph.json"
    return dict(json.loads(path.read_text()))


def run(
    model: Callable[..., Any], backend: Any, calls: list[Tensor], **options: Any
) -> list[Tensor]:
    torch._dynamo.reset()
    torch.manual_seed(1)
    compiled = torch.compile(model, backend=backend, **options)
    return [result for x in calls for result in compiled(x)]


def test_results_are_those_of_aot_eager_bit_for_bit(tmp_path: Path) -> None:
    model, calls = Block().train(), [torch.randn(2, 8), torch.randn(5, 8), torch.randn(3, 8)]
    with torch.no_grad():
        expected = run(model, "aot_eager", calls)
        found = run(model, fx_backend.capture(tmp_path), calls)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    units = list(dict.fromkeys((each.graph, each.step) for each in nodes(tmp_path)))
    # a static graph, then one for every size
    assert units == [(1, 0), (2, 0), (2, 1)]
    assert not [each.problem for each in sealed(tmp_path).processes if each.problem]


def test_gradients_are_those_of_aot_eager_bit_for_bit(tmp_path: Path) -> None:
    model, x = Block().train(), torch.randn(4, 8)
    gradients = []
    for backend in ("aot_eager", fx_backend.capture(tmp_path)):
        model.zero_grad()
        run(model, backend, [x])[0].square().sum().backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for expected, found in zip(*gradients, strict=True):
        assert expected is not None
        assert found is not None
        assert torch.equal(expected, found)
    assert [graph(tmp_path, number)["phase"] for number in (1, 2)] == ["forward", "backward"]
    assert {each.graph for each in nodes(tmp_path)} == {1, 2}


def test_every_file_holds_what_its_operator_makes_of_the_others(tmp_path: Path) -> None:
    with torch.no_grad():
        run(Block().eval(), fx_backend.capture(tmp_path), [torch.randn(4, 8)])
    recomputed = 0
    for node in nodes(tmp_path):
        packet, overload = node.type.removeprefix("aten.").split(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        args: dict[int, Any] = {}
        for each in node.inputs:
            value = each.torch()
            if each.element is not None:
                args.setdefault(each.argument, []).append(value)
            else:
                args[each.argument] = (
                    value if _is_tensor(operator, each.argument) else _plain(value)
                )
        results = operator(*(args[place] for place in sorted(args)))
        for each in node.outputs:
            expected = results[each.index] if isinstance(results, (tuple, list)) else results
            torch.testing.assert_close(each.torch(), expected, msg=node.name)  # other strides
            recomputed += 1
    assert recomputed > 10


def _is_tensor(operator: Any, place: int) -> bool:
    return "Tensor" in str(operator._schema.arguments[place].type)


def _plain(value: Tensor) -> Any:
    return value.tolist()


def test_names_and_folders_are_those_of_torchair(tmp_path: Path) -> None:
    with torch.no_grad():
        run(Block().eval(), fx_backend.capture(tmp_path), [torch.randn(2, 8)])
    folder = tmp_path / "ait_dump" / "fx_tensors" / "worldsize1_global_rank0" / "graph_1" / "0"
    names = [each.name for each in folder.iterdir()]
    assert names
    assert all(FILE_NAME.fullmatch(name) for name in names)
    assert not any(name.startswith(("getitem", "output", "arg")) for name in names)
    times = {match[6] for name in names if (match := FILE_NAME.fullmatch(name))}
    assert len(times) == len(nodes(tmp_path))  # all files of a node share one
    assert (folder.stat().st_mode & 0o777, (folder / names[0]).stat().st_mode & 0o777) == (
        0o750,
        0o640,
    )


def test_nodes_are_saved_in_the_order_of_the_graph(tmp_path: Path) -> None:
    with torch.no_grad():
        run(Block().eval(), fx_backend.capture(tmp_path), [torch.randn(2, 8)])
    described = [
        each["name"]
        for each in graph(tmp_path)["nodes"]
        if each["op"] == "call_function" and "getitem" not in each["target"]
    ]
    assert [each.name for each in nodes(tmp_path)] == described


def test_the_graph_file_says_where_nodes_come_from(tmp_path: Path) -> None:
    with torch.no_grad():
        run(Block().eval(), fx_backend.capture(tmp_path), [torch.randn(2, 8)])
    found = {each["name"]: each for each in graph(tmp_path)["nodes"]}
    addmm = found["addmm"]
    assert addmm["target"] == "aten.addmm.default"
    assert addmm["outputs"] == [{"dtype": "float32", "shape": [2, 16], "device": "cpu"}]
    assert addmm["modules"][-1]["type"] == "Linear"
    assert addmm["modules"][-1]["path"].endswith("up")
    assert addmm["source"]["file"] == __file__
    assert "self.up(x)" in addmm["source"]["code"]
    assert found["cat"]["args"] == [[{"node": addmm_input(found)}, {"node": "mm"}]]
    assert found["topk"]["inputs"] == ["cat"]


def addmm_input(found: dict[str, Any]) -> str:
    """The placeholder of the model's input."""
    return str(found["addmm"]["args"][1]["node"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_types_that_files_have_no_name_for_keep_every_bit(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    values = torch.tensor([1.0, -0.0078125, 448.0, 0.3]).to(dtype)
    with torch.no_grad():
        run(lambda x: (x.to(torch.float32), x.clone()), fx_backend.capture(tmp_path), [values])
    (copy,) = (each for each in nodes(tmp_path) if each.name == "clone")
    assert np.load(copy.outputs[0].path).dtype == np.float32  # as torchair has it
    assert copy.outputs[0].numpy().dtype == getattr(ml_dtypes, str(dtype).removeprefix("torch."))
    bits = values.view(torch.uint8).numpy().tobytes()
    assert copy.inputs[0].numpy().tobytes() == copy.outputs[0].numpy().tobytes() == bits


class Counter(nn.Module):
    """Changes its own buffer and its argument in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        x.mul_(2)
        self.calls.add_(1)
        return (x + self.calls,)


def test_what_is_changed_in_place_is_saved_as_it_was_before(tmp_path: Path) -> None:
    model, x = Counter(), torch.ones(2)
    with torch.no_grad():
        (result,) = run(model, fx_backend.capture(tmp_path), [x])
    assert (result.tolist(), x.tolist(), model.calls.tolist()) == ([3, 3], [2, 2], [1, 1])
    found = {each.name: each for each in nodes(tmp_path)}
    assert found["mul"].inputs[0].numpy().tolist() == [1, 1]
    copies = [each for name, each in found.items() if name.startswith("copy_")]
    before = sorted(each.inputs[0].numpy().tolist() for each in copies)
    assert before == [[0, 0], [1, 1]]
    assert sorted(each.outputs[0].numpy().tolist() for each in copies) == [[1, 1], [2, 2]]


@pytest.mark.parametrize("filters", [{}, {"nodes": ["sin", "cos"]}])
def test_a_tensor_that_changes_within_the_graph_is_saved_anew(
    tmp_path: Path, filters: dict[str, Any]
) -> None:
    aten, graph = torch.ops.aten, torch.fx.Graph()
    x = graph.placeholder("x")
    graph.create_node("call_function", aten.sin.default, (x,), name="sin")
    graph.create_node("call_function", aten.add_.Tensor, (x, 1.0), name="add_")
    graph.output((graph.create_node("call_function", aten.cos.default, (x,), name="cos"),))
    fx_backend.capture(tmp_path, **filters)
    module = torch.fx.GraphModule(nn.Module(), graph)
    captured = GraphCapture(module, sessions._open[tmp_path], "inference")
    captured([torch.zeros(1 << 12)])  # large enough to be linked
    found = {each.name: each for each in nodes(tmp_path)}
    assert found["sin"].inputs[0].numpy().max() == 0
    assert found["cos"].inputs[0].numpy().min() == 1


def test_a_large_tensor_is_one_file_with_several_names(tmp_path: Path) -> None:
    with torch.no_grad():
        run(lambda x: (x.sin().cos(),), fx_backend.capture(tmp_path), [torch.ones(1 << 12)])
    sin, cos = nodes(tmp_path)
    assert sin.outputs[0].path.samefile(cos.inputs[0].path)
    assert not cos.inputs[0].path.samefile(cos.outputs[0].path)


def test_graph_breaks_give_several_graphs(tmp_path: Path) -> None:
    def broken(x: Tensor) -> tuple[Tensor]:
        y = x.sin()
        torch._dynamo.graph_break()
        return (y.cos(),)

    with torch.no_grad():
        run(broken, fx_backend.capture(tmp_path), [torch.ones(4)] * 2)
    found = [(each.graph, each.step, each.name) for each in nodes(tmp_path)]
    assert found == [(1, 0, "sin"), (2, 0, "cos"), (1, 1, "sin"), (2, 1, "cos")]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"steps": [1]}, {("sin", 1), ("cos", 1)}),
        ({"steps": "0,0"}, {("sin", 0), ("cos", 0)}),
        ({"nodes": "s*"}, {("sin", 0), ("sin", 1)}),
        ({"targets": ["aten.cos.*"], "steps": [0]}, {("cos", 0)}),
    ],
)
def test_filters_select_executions_nodes_and_targets(
    tmp_path: Path, filters: dict[str, Any], expected: set[tuple[str, int]]
) -> None:
    with torch.no_grad():
        backend = fx_backend.capture(tmp_path, **filters)
        run(lambda x: (x.sin().cos(),), backend, [torch.ones(4)] * 2)
    assert {(each.name, each.step) for each in nodes(tmp_path)} == expected


@pytest.mark.parametrize(("part", "roles"), [(0, {"in"}), (1, {"out"}), (2, {"in", "out"})])
def test_one_side_alone_can_be_saved(tmp_path: Path, part: int, roles: set[str]) -> None:
    with torch.no_grad():
        run(lambda x: (x.sin(),), fx_backend.capture(tmp_path, tensor_part=part), [torch.ones(4)])
    assert {each.role for node in nodes(tmp_path) for each in node.tensors} == roles


def test_operators_can_be_taken_apart_as_inductor_does(tmp_path: Path) -> None:
    with torch.no_grad():
        backend = fx_backend.capture(tmp_path, decompositions="inductor")
        run(lambda x: (nn.functional.silu(x),), backend, [torch.ones(4)])
    types = {each.type for each in nodes(tmp_path)}
    assert "aten.silu.default" not in types
    assert "aten.exp.default" in types or "aten.sigmoid.default" in types


def test_an_exception_of_the_program_stays_as_it_is(tmp_path: Path) -> None:
    def strict(x: Tensor) -> tuple[Tensor]:
        torch._assert_async((x > 0).all(), "must be positive")
        return (x.sin(),)

    texts = []
    for backend in ("aot_eager", fx_backend.capture(tmp_path)):
        with torch.no_grad(), pytest.raises(RuntimeError) as caught:
            run(strict, backend, [-torch.ones(4)])
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_cannot_be_written_is_told_and_does_not_stop_the_program(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin().cos(), backend=fx_backend.capture(tmp_path))
    with torch.no_grad():
        compiled(torch.ones(4))
        folder = tmp_path / "ait_dump/fx_tensors/worldsize1_global_rank0/graph_1"
        (folder / "1").write_text("in the way")
        result = compiled(torch.ones(4))
    assert torch.equal(result, torch.ones(4).sin().cos())
    (process,) = sealed(tmp_path).processes
    assert {loss.op for loss in process.losses} == {"sin", "cos"}
    assert all(loss.state == "failed" and loss.step == 1 for loss in process.losses)
    assert "lost 4 tensors of 2 operations" in str(process.problem)


def test_a_graph_without_a_folder_is_told_and_runs_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = fx_backend.capture(tmp_path)
    (tmp_path / "ait_dump" / "fx_tensors" / "worldsize1_global_rank0").write_text("in the way")
    with torch.no_grad():
        (result,) = run(lambda x: (x.sin(),), backend, [torch.ones(4)])
    assert torch.equal(result, torch.ones(4).sin())
    assert "of a compiled graph cannot be written" in caplog.text
    (process,) = sealed(tmp_path).processes
    assert "could not be written" in str(process.problem)
    ledger = next((tmp_path / "ait_dump" / "ledger").iterdir())
    record = read_torch_ledger(ledger, "")
    assert record is not None
    (sentence,) = torch_losses([record])
    assert "1 of the compiled graphs could not be written" in sentence


def test_ranks_have_folders_and_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "world", lambda: (4, 3))
    with torch.no_grad():
        run(lambda x: (x.sin(),), fx_backend.capture(tmp_path), [torch.ones(4)])
    assert (tmp_path / "ait_dump/fx_tensors/worldsize4_global_rank3/graph_1/0").is_dir()
    (node,) = nodes(tmp_path)
    (process,) = open_dump(tmp_path).processes
    assert (process.device, process.pid, process.state) == (3, os.getpid(), "sealed")
    assert node.rank == 3


def test_a_file_that_vanished_is_missing(tmp_path: Path) -> None:
    with torch.no_grad():
        run(lambda x: (x.sin().cos(),), fx_backend.capture(tmp_path), [torch.ones(4)])
    nodes(tmp_path)[0].outputs[0].path.unlink()
    (process,) = open_dump(tmp_path).processes
    assert [(loss.op, loss.state, loss.tensors) for loss in process.losses] == [
        ("sin", "missing", 1)
    ]


def test_two_processes_share_a_folder_without_mixing_graphs(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin(), backend=fx_backend.capture(tmp_path))
    compiled(torch.ones(4))
    child = multiprocessing.get_context("fork").Process(target=compiled, args=(torch.zeros(4),))
    child.start()
    child.join()
    assert child.exitcode == 0
    dump = sealed(tmp_path)
    found = [(each.pid == os.getpid(), each.graph, each.step) for each in dump.operations()]
    assert sorted(found) == [(False, 2, 0), (True, 1, 0)]
    assert all(process.sealed for process in dump.processes)
    assert len(dump.processes) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"dump_path": 3},
        {"steps": [-1]},
        {"steps": "1"},
        {"tensor_part": True},
        {"nodes": [""]},
        {"targets": [3]},
        {"decompositions": "core"},
    ],
)
def test_unusable_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        fx_backend.capture(**{"dump_path": tmp_path, **arguments})


def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ait_dump").write_text("a file")
    with pytest.raises(UsageError, match="choose another output folder"):
        fx_backend.capture(tmp_path)


def test_one_folder_has_one_set_of_settings(tmp_path: Path) -> None:
    fx_backend.capture(tmp_path)
    fx_backend.capture(tmp_path)
    with pytest.raises(UsageError, match="other settings"):
        fx_backend.capture(tmp_path, steps=[0])
    sessions._open.pop(tmp_path)


def test_targets_have_no_addresses() -> None:
    traced = torch.fx.symbolic_trace(lambda x: torch.sym_float(x) + 1)
    from ait_llm.dump.fx.graph_file import target_of

    texts = [target_of(node) for node in traced.graph.nodes if node.op == "call_function"]
    assert texts
    assert not any(re.search("0x|/", text) for text in texts)


def test_what_each_value_is_is_in_the_ledger(tmp_path: Path) -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 6))

        def forward(self, x: Tensor) -> Tensor:
            self.rows.add_(x)
            first, second = self.rows.chunk(2, -1)
            return first * 1.0 + second

    run(Cached(), fx_backend.capture(tmp_path), [torch.ones(4, 6)])
    sealed(tmp_path)
    [path] = (tmp_path / "ait_dump" / "ledger").glob("fx_*.jsonl")
    found: dict[str, tuple[Any, ...]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        for stem, (storage, version, offset, strides) in line.get("identity", {}).items():
            found[f"{line['op']}/{stem}"] = (storage, version, offset, tuple(strides))
    made, cache = found["add/OUTPUT.0"], found["copy_/INPUT.0"]
    assert found["add/INPUT.0"] == cache
    # The graph writes the argument last, and until then works with what it will be.
    assert found["copy_/INPUT.1"] == made
    assert found["copy_/OUTPUT.0"] == (cache[0], cache[1] + 1, *cache[2:])
    parts = [value for name, value in found.items() if re.match("split.*/OUTPUT", name)][:2]
    assert parts == [(*made[:2], 0, (6, 1)), (*made[:2], 3, (6, 1))]
    assert found["mul/INPUT.0"] == parts[0]
    assert found["mul/OUTPUT.0"][0] != made[0]


def test_a_process_that_goes_on_can_say_that_its_dump_is_whole(tmp_path: Path) -> None:
    model = torch.compile(nn.Linear(3, 2), backend=fx_backend.capture(tmp_path))
    model(torch.ones(1, 3))
    assert [each.sealed for each in open_dump(tmp_path).processes] == [False]
    fx_backend.seal()
    assert [each.sealed for each in open_dump(tmp_path).processes] == [True]
    model(torch.ones(1, 3))  # more of it
    assert [each.sealed for each in open_dump(tmp_path).processes] == [False]
    assert {each.step for each in nodes(tmp_path)} == {0, 1}


def test_the_end_of_a_cell_of_a_notebook_seals_what_it_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Callable[[object], None]] = []

    class Events:
        def register(self, event: str, called: Callable[[object], None]) -> None:
            assert event == "post_run_cell"
            ends.append(called)

    shell = SimpleNamespace(events=Events())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    model = torch.compile(nn.Linear(3, 2), backend=fx_backend.capture(tmp_path))
    model(torch.ones(1, 3))
    assert not open_dump(tmp_path).processes[0].sealed
    for each in ends:
        each(None)
    assert open_dump(tmp_path).processes[0].sealed
    assert len(ends) == 1
