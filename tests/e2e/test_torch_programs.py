"""``ait llm dump --type torch`` around programs that know nothing of it.

Each program runs once per module; what lies on disk is compared with values computed here.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ait_llm
from ait_llm.dumps import Dump, open_dump
from ait_llm.dumps.operations import Operation

PROGRAMS = Path(__file__).parent / "programs"


def environment() -> dict[str, str]:
    source = str(Path(ait_llm.__file__).parent.parent)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    paths = [source, str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }


@dataclass(frozen=True)
class Run:
    """A finished ``ait llm dump``."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @cached_property
    def dump(self) -> Dump:
        return open_dump(self.folder)

    @cached_property
    def result(self) -> dict[str, Any]:
        return dict(json.loads(self.done.stdout.splitlines()[-1]))

    @property
    def printed(self) -> list[str]:
        """Lines that the program itself printed."""
        return [line for line in self.done.stdout.splitlines()[:-1] if line]

    @cached_property
    def calls(self) -> list[Operation]:
        return [call for call in self.dump.operations() if isinstance(call, Operation)]

    def value(self, name: str, stem: str, *, step: int = 0, pid: int | None = None) -> Tensor:
        """The saved tensor of the only call of that module."""
        (call,) = [
            call
            for call in self.calls
            if (call.name, call.step) == (name, step) and pid in (None, call.pid)
        ]
        (tensor,) = [tensor for tensor in call.tensors if tensor.stem == stem]
        return torch.load(tensor.file)


def dump(folder: Path, command: str, *options: str, **variables: str) -> Run:
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", command, "-o", str(folder)]
    done = subprocess.run(
        [*words, "--json", *options],
        cwd=PROGRAMS,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(folder, done)


class Watch:
    """Values of one's own: inputs and outputs of each call of each module, by plain hooks."""

    def __init__(self, model: nn.Module) -> None:
        self.outputs: dict[str, list[Any]] = {}
        for name, module in model.named_modules():
            path = f"root.{name}" if name else "root"
            module.register_forward_hook(
                lambda _m, _a, output, path=path: self.outputs.setdefault(path, []).append(output)
            )


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The transformers script, started by a shell script, beside the user's own start-up code."""
    folder = tmp_path_factory.mktemp("generated")
    own = folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.environ['OWN_SITE'] = '1'\n")
    (folder / "run.sh").write_text(
        f"set -e\nexport PYTHONPATH=$PYTHONPATH:{own}\n"
        f"{sys.executable} -c 'import os, sys; print(os.environ[\"OWN_SITE\"], sys.path[0])'\n"
        f"{sys.executable} generate.py\n"
    )
    options = ("--type", "torch", "torch-stats", "-er", "0,1", "--verify-observer", "--weights")
    return dump(folder, f"bash {folder}/run.sh", *options)


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return runpy.run_path(str(PROGRAMS / "generate.py"))


def test_a_transformers_script_prints_what_it_prints_alone(
    generated: Run, program: dict[str, Any]
) -> None:
    assert generated.done.returncode == 0, generated.done.stderr
    assert generated.printed == ["1 ", str(program["run"](program["make_model"]()))]


def test_the_modules_of_a_transformers_script_hold_what_the_model_computes(
    generated: Run, program: dict[str, Any]
) -> None:
    model = program["make_model"]()
    watch = Watch(model)
    program["run"](model)
    for step in (0, 1):
        for path in ("root.model.embed_tokens", "root.model.layers.1.mlp", "root.lm_head"):
            expected = watch.outputs[path][step]
            torch.testing.assert_close(generated.value(path, "output", step=step), expected)
        logits = generated.value("root", "output_logits", step=step)
        torch.testing.assert_close(logits, watch.outputs["root"][step].logits)
    assert generated.dump.steps == (0, 1)


def test_the_first_call_of_a_model_is_captured_with_its_keyword_arguments(
    generated: Run, program: dict[str, Any]
) -> None:
    assert torch.equal(generated.value("root", "input_input_ids"), torch.tensor(program["PROMPT"]))
    (root,) = [call for call in generated.calls if (call.name, call.step) == ("root", 0)]
    assert root.params["input_use_cache"] is True


def test_the_weights_of_a_model_are_saved_once(generated: Run, program: dict[str, Any]) -> None:
    weights = {
        path.stem: path for path in generated.folder.glob("ait_dump/torch_tensors/*/weights/*.pth")
    }
    parameters = {f"root.{name}": p for name, p in program["make_model"]().named_parameters()}
    assert set(parameters) <= set(weights)
    for name, parameter in parameters.items():
        assert torch.equal(torch.load(weights[name]), parameter.data)


def test_statistics_are_beside_the_data(generated: Run) -> None:
    (call,) = [c for c in generated.calls if (c.name, c.step) == ("root.lm_head", 0)]
    (output,) = [tensor for tensor in call.tensors if tensor.stem == "output"]
    assert output.recorded_statistics is not None
    assert output.recorded_statistics.max == torch.load(output.file).max().item()


def test_the_observer_is_proved_not_to_change_the_outputs(
    generated: Run, program: dict[str, Any]
) -> None:
    observer = generated.result["observer"]
    assert (observer["verdict"], observer["outputs"]) == ("same", program["NEW_TOKENS"])
    assert "observer  same: 3 outputs" in generated.done.stderr


def test_the_summary_adds_up_what_lies_on_disk(generated: Run) -> None:
    result = generated.result
    assert result["modules"] == sum(call.type != "weights" for call in generated.calls)
    assert result["sealed"]
    assert result["complete"]
    files = list(generated.folder.glob("ait_dump/torch_tensors/*/*/*.pth"))
    files += generated.folder.glob("ait_dump/torch_tensors/*/*/*/*.pth")
    assert result["tensors"] == len(files)
    assert result["next"] == f"ait llm show {generated.folder}/ait_dump"
    assert not list(generated.folder.glob(".ait_run_*"))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    python = sys.executable
    return dump(tmp_path_factory.mktemp("workers"), f"{python} workers.py", "--type", "torch")


def test_children_of_every_kind_are_captured(workers: Run) -> None:
    net = runpy.run_path(str(PROGRAMS / "tiny_net.py"))
    seen = []
    for process in workers.dump.processes:
        assert process.state == "sealed"
        saved = workers.value("root", "output", pid=process.pid)
        for seed in range(4):
            expected = net["Net"](seed)(net["inputs"](), scale=2.0).detach()
            if torch.equal(saved, expected):
                seen.append(seed)
    assert sorted(seen) == [0, 1, 2, 3]


def test_the_exit_code_and_output_of_a_program_are_its_own(workers: Run) -> None:
    assert workers.done.returncode == 5
    assert [line.split()[0] for line in workers.printed] == ["1", "2", "0", "3"]


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Run:
    command = (
        f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 "
        "tensor_parallel.py"
    )
    return dump(tmp_path_factory.mktemp("parallel"), command, "--type", "torch")


def test_a_tensor_parallel_program_is_captured_by_shard(parallel: Run) -> None:
    assert parallel.done.returncode == 0, parallel.done.stderr
    net = runpy.run_path(str(PROGRAMS / "tiny_net.py"))
    model = net["Net"]()
    with torch.no_grad():
        up = model.up(net["inputs"]())
        output = model(net["inputs"]())
    halves = [
        parallel.value("root.up", "output", pid=process.pid) for process in parallel.dump.processes
    ]
    assert len(halves) == 2
    if not torch.allclose(halves[0], up[:, :4]):
        halves.reverse()
    torch.testing.assert_close(torch.cat(halves, dim=1), up)
    for process in parallel.dump.processes:
        saved = parallel.value("root", "output", pid=process.pid)
        torch.testing.assert_close(saved, output)


def test_shards_name_their_placements(parallel: Run) -> None:
    for ledger in parallel.folder.glob("ait_dump/ledger/*.jsonl"):
        lines = [json.loads(line) for line in ledger.read_text().splitlines()]
        (line,) = [line for line in lines if line.get("op") == "root.up"]
        assert "Shard(dim=" in line["notes"]["output"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("compiled")
    return dump(folder, f"{sys.executable} compiled.py", "--type", "torch", "-er", "all")


def test_a_compiled_model_stays_one_graph(compiled: Run) -> None:
    (line,) = compiled.printed
    assert line.split()[1:] == ["1", "1", "1"]


def test_a_compiled_model_is_captured_at_its_boundary(compiled: Run) -> None:
    net = runpy.run_path(str(PROGRAMS / "tiny_net.py"))
    x = net["inputs"]()
    with torch.no_grad():
        expected = {
            "root": net["Net"](0)(x),
            "root1": net["Net"](1)(x),
            "root2.0.up": net["Net"](2).up(x),
            "root2.0": (y := net["Net"](2)(x)),
            "root2.1": (z := net["Net"](3)(y)),
            "root2": z,
        }
    for step in range(3):
        for path, value in expected.items():
            torch.testing.assert_close(compiled.value(path, "output", step=step), value)
            assert len(compiled.value(path, "input_0", step=step)) == 3


def test_modules_inside_torch_compile_are_captured_by_operators_of_the_graph(
    compiled: Run,
) -> None:
    assert compiled.done.returncode == 0, compiled.done.stderr
    models = ("root", "root1", "root2.0", "root2.1")
    inner = {f"{model}.{name}" for model in models for name in ("up", "down")}
    assert {call.name for call in compiled.calls} == {*models, *inner, "root2"}
    assert len(compiled.calls) == 3 * (len(inner) + 5)  # each once in each step
    net = runpy.run_path(str(PROGRAMS / "tiny_net.py"))
    with torch.no_grad():
        expected = net["Net"](0).up(net["inputs"]())
    for step in range(3):
        torch.testing.assert_close(compiled.value("root.up", "output", step=step), expected)


def test_the_named_way_shows_the_modules_of_a_compiled_model(tmp_path: Path) -> None:
    run = dump(
        tmp_path, f"{sys.executable} compiled.py", "--type", "torch", TORCHDYNAMO_DISABLE="1"
    )
    assert run.done.returncode == 0, run.done.stderr
    models = ("root", "root1", "root2.0", "root2.1")
    inner = {f"{model}.{name}" for model in models for name in ("up", "down")}
    assert {call.name for call in run.calls} == {*models, *inner, "root2"}
    assert len(run.calls) == len(inner) + 5  # each once


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("several")
    return dump(folder, f"{sys.executable} several_roots.py", "--type", "torch", "-er", "0,1")


def test_a_tower_that_runs_first_belongs_to_its_model(several: Run) -> None:
    net = runpy.run_path(str(PROGRAMS / "tiny_net.py"))
    features = net["Net"](11)(net["inputs"]()).detach()
    output = net["Net"](12)(features).detach()
    for step in (0, 1):
        torch.testing.assert_close(several.value("root.tower", "output", step=step), features)
        torch.testing.assert_close(several.value("root", "output", step=step), output)


def test_wrappers_do_not_show_in_names(several: Run) -> None:
    net = runpy.run_path(str(PROGRAMS / "tiny_net.py"))
    expected = net["Net"](13).up(net["inputs"]()).detach()
    torch.testing.assert_close(several.value("root1.up", "output"), expected)


def test_losses_are_not_models(several: Run) -> None:
    assert {call.name.split(".")[0] for call in several.calls} == {"root", "root1"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Run:
    options = ("--type", "torch", "torch-op", "-sd", "-stp", "1", "--module-name", "*.down")
    return dump(tmp_path_factory.mktemp("described"), f"{sys.executable} -m tiny_net", *options)


def test_operators_are_recorded_below_the_selected_modules(described: Run) -> None:
    assert described.done.returncode == 0, described.done.stderr
    names = {call.name for call in described.calls}
    assert names == {"root.down", "root.down.aten.t.default", "root.down.aten.addmm.default"}
    assert (described.result["modules"], described.result["operators"]) == (1, 2)


def test_descriptions_have_types_and_shapes_and_no_data(described: Run) -> None:
    assert not list(described.folder.rglob("*.pth"))
    (call,) = [call for call in described.calls if call.name == "root.down"]
    (output,) = call.tensors
    assert (output.stem, output.dtype.torch_name, output.shape) == ("output", "float32", (3, 4))
    assert output.recorded_statistics is not None
    assert output.recorded_statistics.max is None


def test_a_program_that_ignores_the_environment_is_named_and_3(tmp_path: Path) -> None:
    run = dump(tmp_path, f"{sys.executable} -I -c pass", "--type", "torch")
    assert run.done.returncode == 3
    (problem,) = run.result["problems"]
    assert "its Python is started with -I, -E or -S" in problem
    assert run.result["next"] is None
