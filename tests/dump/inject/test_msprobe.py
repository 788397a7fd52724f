"""Engines that capture through msprobe capture through us, with no change to them."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msprobe_engines
import pytest
import torch
from api_captures import Captured
from click.testing import CliRunner
from transformers import LlamaForCausalLM

from ait_llm.cli.main import ait
from ait_llm.dump.api import PrecisionDebugger, acl_save
from ait_llm.dump.api.numbers import four_numbers, reduced_numbers
from ait_llm.dump.inject.channel import read_reports
from ait_llm.dump.inject.msprobe import names
from ait_llm.dump.inject.msprobe.settings import VARIABLE, MsprobeSettings, msprobe_environment
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE
from ait_llm.dump.inject.site import ait_msprobe
from ait_llm.dump.msprobe_run import plan_msprobe_dump, run_msprobe_dump
from ait_llm.dump.pytorch.statistics import reduced
from ait_llm.dump.taps.replays import StaticMemory, recordings
from ait_llm.dump.torch_ledger import TorchProcess, read_torch_ledger
from ait_llm.dump.torch_summary import TorchSummary
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.program.passes import passes_of
from ait_llm.program.token_ids import token_ids

DATA = Path(__file__).parents[2] / "data" / "msprobe"
ENGINE_FILE = "/engine/own.json"


class Program:
    """This process as the started program: ``msprobe.pytorch`` is ours in it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, patch
        self.channel = folder / "channel"
        self.dump = folder / "dump"
        self.channel.mkdir()
        self.configure()

    def configure(self, level: str = "L0", task: str = "statistics", **more: Any) -> Path:
        config = {"dump_path": "not/here", "task": task, "level": level, **more}
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        self._patch.setenv(VARIABLE, MsprobeSettings(path, self.dump).to_json())
        self._patch.setenv(CHANNEL_VARIABLE, str(self.channel))
        return path

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each.facts for each in read_reports(self.channel) if each.event == event]

    def process(self) -> TorchProcess:
        (path,) = {each["path"] for each in self.told("ledger")}
        found = read_torch_ledger(Path(path), None)
        assert found is not None
        return found


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    for name in [each for each in sys.modules if each.partition(".")[0] == "msprobe"]:
        monkeypatch.delitem(sys.modules, name)
    before = list(sys.meta_path)
    PrecisionDebugger._reset()
    ait_msprobe.stand_in()
    yield Program(tmp_path, monkeypatch)
    _close()
    sys.meta_path[:] = before
    for name in [each for each in sys.modules if each.partition(".")[0] == "msprobe"]:
        del sys.modules[name]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_records_of_vllm_ascend_are_those_of_msprobe(program: Program, level: str) -> None:
    program.configure(level)
    msprobe_engines.run("vllm-ascend", ENGINE_FILE)
    expected = json.loads((DATA / "engine_records.json").read_text())[level]
    for step in range(3):
        captured = Captured(program.dump, step)
        assert {name: sorted(each) for name, each in captured.data.items()} == expected["dump"]
        assert list(captured.data) == list(expected["dump"])
        # msprobe's also has calls that have no record
        parents = expected["construct"].items()
        assert captured.json("construct.json") == {
            name: parent for name, parent in parents if name in captured.data
        }


@pytest.mark.parametrize("kind", ["vllm-ascend", "vllm-ascend-graphs", "sglang"])
def test_each_pass_of_an_engine_is_a_sealed_step(
    program: Program, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "seed_all", lambda mode: None)  # it is for the whole process
    msprobe_engines.run(kind, ENGINE_FILE)
    process = program.process()
    assert (process.steps, process.modules, process.end) == ({0, 1, 2}, 24, "step")
    shapes = [
        Captured(program.dump, step).data["Module.head.Linear.forward.0"]["output"][0]["shape"]
        for step in range(3)
    ]
    assert shapes == [[5, 50], [2, 50], [1, 50]]


def test_a_step_that_a_graph_replays_is_told_and_not_silently_empty(program: Program) -> None:
    msprobe_engines.run("vllm-ascend-replayed", ENGINE_FILE)
    process = program.process()
    assert process.steps == {0}
    assert [text.partition(":")[0] for text in process.lacks] == ["step 1", "step 2"]
    assert "6 of 6 modules with weights were not seen" in process.lacks[0]
    assert not (program.dump / "step1").exists()


def _close() -> None:
    """End what a program would end when it exits."""
    PrecisionDebugger._reset()
    for each in list(recordings._followers):
        each.close()  # type: ignore[attr-defined]


def _numbers(value: Any) -> Any:
    """Numbers as pytest compares them, files by their last part."""
    if isinstance(value, dict):
        return {name: _numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def _both(program: Program, kind: str, *settings: str, **more: Any) -> Iterator[Any]:
    """Each step of an eager run and of one of another kind."""
    eager = program.folder / "eager"
    program.configure(*settings, **more)
    msprobe_engines.run("vllm-ascend-graphs", ENGINE_FILE)
    _close()
    program.dump.rename(eager)
    program.configure(*settings, **more)
    msprobe_engines.run(kind, ENGINE_FILE)
    for step in range(3):
        yield Captured(eager, step), Captured(program.dump, step)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_replayed_steps_have_the_numbers_of_eager_ones(program: Program, level: str) -> None:
    for eager, mine in _both(program, "vllm-ascend-recorded", level):
        assert list(mine.data) == list(eager.data)
        assert mine.data == _numbers(eager.data)
        assert mine.json("construct.json") == eager.json("construct.json")
    assert program.process().lacks == []


@pytest.mark.parametrize("kind", ["vllm-ascend-recorded", "vllm-ascend-compiled"])
def test_steps_of_graphs_have_the_tensors_of_eager_ones(program: Program, kind: str) -> None:
    for eager, mine in _both(program, kind, "L0", "tensor"):
        assert mine.data == eager.data
        assert mine.files == eager.files
        for name in eager.files:
            assert torch.equal(mine.tensor(name), eager.tensor(name)), name
    assert program.process().lacks == []


def test_a_compiled_model_is_compiled_once_for_all_steps(program: Program) -> None:
    counts = []
    for captured in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        if captured:
            msprobe_engines.run("vllm-ascend-compiled", ENGINE_FILE)
        else:
            plain = torch.compile(msprobe_engines.Net(), backend="aot_eager")
            with torch.no_grad():
                for scheduled in msprobe_engines.REQUESTS:
                    plain(torch.arange(sum(scheduled.values())))
        counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert counts[0] == counts[1]


def test_a_step_that_is_not_recorded_is_not_when_it_is_replayed(program: Program) -> None:
    program.configure("mix", step=[1])
    msprobe_engines.run("vllm-ascend-recorded", ENGINE_FILE)
    assert program.process().steps == {1}
    data = Captured(program.dump, 1).data
    assert data["Module.head.Linear.forward.0"]["output"][0]["shape"] == [2, 50]
    assert "Functional.linear.0.forward" in data


def test_numbers_of_a_graph_that_are_infinite_have_no_sign() -> None:
    four = reduced_numbers(reduced(torch.tensor([1.0, -math.inf])))
    assert four == (None, None, None, math.inf)
    assert all(map(math.isnan, reduced_numbers(reduced(torch.tensor([1.0, math.nan])))))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float32])
def test_numbers_of_a_graph_are_those_of_the_tensor(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1.5, -2.0, 0.0], [3.0, 1.0, 7.0]]).to(dtype)
    found = reduced_numbers(reduced(tensor), exact=False)
    assert found == pytest.approx(four_numbers(tensor, exact=False))


def test_a_value_that_no_memory_can_be_had_for_costs_the_graph_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(StaticMemory, "keep", full)
    msprobe_engines.run("vllm-ascend-recorded", ENGINE_FILE)
    said = capsys.readouterr().err
    assert "is not captured where a graph is replayed: out of memory" in said
    assert len(program.process().lacks) == 3


def test_what_an_engine_compiles_for_a_capture_is_not_kept(program: Program) -> None:
    settings = MsprobeSettings(program.configure(), program.dump)
    environment = msprobe_environment(settings, {}, program.channel)
    assert environment["VLLM_DISABLE_COMPILE_CACHE"] == "1"


def test_a_request_is_recorded_in_its_steps_with_its_rows(program: Program) -> None:
    program.configure("L0", "tensor", request_id="a")
    msprobe_engines.run("vllm-ascend", ENGINE_FILE)
    assert program.process().steps == {0, 1}
    whole = msprobe_engines.Net()(torch.arange(5))
    (file,) = (each for each in Captured(program.dump, 0).files if "head" in each and "out" in each)
    assert torch.equal(Captured(program.dump, 0).tensor(file), whole[:3])


def test_the_rows_of_requests_are_in_the_ledger(program: Program) -> None:
    msprobe_engines.run("vllm-ascend", ENGINE_FILE)
    lines = program.process().path.read_text().splitlines()
    rows = [line["rows"] for line in map(json.loads, lines) if "rows" in line]
    assert rows == list(msprobe_engines.REQUESTS)


def test_the_launchers_file_holds_and_what_the_program_gives_is_told(program: Program) -> None:
    from msprobe.pytorch import PrecisionDebugger as Theirs  # type: ignore[import-not-found]

    debugger = Theirs(ENGINE_FILE, task="tensor", level="mix", step=[7])
    assert Theirs() is debugger
    settings = debugger._session.settings
    assert (settings.task, settings.level, settings.steps) == ("statistics", "L0", frozenset())
    assert settings.dump_path == program.dump
    assert program.told("debugger") == [
        {"kind": "PrecisionDebugger", "named": ENGINE_FILE, "given": ["level", "step", "task"]}
    ]


def test_dump_enable_switches_steps_on_and_off(program: Program) -> None:
    program.configure(dump_enable=False)
    engine = msprobe_engines.VllmAscend(ENGINE_FILE, graphs=True)
    engine.execute_model({"a": 3})
    program.configure(dump_enable=True)
    engine.execute_model({"a": 2})
    engine.execute_model({"a": 1})
    engine.debugger.close()
    assert program.process().steps == {1, 2}


def test_custom_api_of_graphs_is_recorded_under_its_path(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msprobe_engines, "scale", lambda x: x * 2, raising=False)
    path = "msprobe_engines.scale"
    program.configure("mix", "tensor", **{"tensor": {"custom_api": [path]}})
    engine = msprobe_engines.VllmAscend(ENGINE_FILE, graphs=True)
    engine.model.register_forward_hook(lambda _m, _a, out: msprobe_engines.scale(out))  # type: ignore[attr-defined]
    engine.execute_model({"a": 2})
    engine.debugger.close()
    assert "msprobe_engines.scale.0.forward" in Captured(program.dump, 0).data


def test_a_function_that_is_not_there_is_one_sentence(program: Program) -> None:
    program.configure("mix", "tensor", **{"tensor": {"custom_api": ["torch.nn.no_such"]}})
    with pytest.raises(UsageError, match=r"custom_api: there is no function torch\.nn\.no_such"):
        msprobe_engines.VllmAscend(ENGINE_FILE, graphs=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "overflow_check"}, "'overflow_check' is not for AclGraphDumper"),
        ({"level": "debug"}, "AclGraphDumper records L0, L1 or mix"),
    ],
)
def test_graphs_refuse_what_they_cannot_record(
    program: Program, settings: dict[str, str], words: str
) -> None:
    program.configure(**settings)
    with pytest.raises(UsageError, match=words):
        msprobe_engines.VllmAscend(ENGINE_FILE, graphs=True)


def test_saved_tensors_are_numbered(tmp_path: Path) -> None:
    for number in range(2):
        x = torch.full((2, 3), float(number)).T
        assert acl_save(x, str(tmp_path / "act.pt")) is x
    saved = [torch.load(tmp_path / f"act_{number}.pt", weights_only=True) for number in range(2)]
    assert [(each[0, 0].item(), tuple(each.shape)) for each in saved] == [(0, (3, 2)), (1, (3, 2))]


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"acl_save: .* cannot be written"):
        acl_save(torch.ones(1), str(tmp_path / "no" / "act.pt"))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("msprobe.pytorch", "PrecisionDebugger"),
        ("msprobe.pytorch.debugger.precision_debugger", "PrecisionDebugger"),
        ("msprobe.pytorch.dump.debugger.precision_debugger", "PrecisionDebugger"),
        ("msprobe.pytorch.common.utils", "seed_all"),
        ("msprobe.pytorch.aclgraph_dump", "acl_save"),
        ("msprobe.pytorch.aclgraph_dumper", "AclGraphDumper"),
    ],
)
def test_names_are_where_scripts_take_them_from(program: Program, module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert found.__module__.startswith("ait_llm.")


def test_ours_wins_and_the_rest_of_an_installed_msprobe_stays(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = program.folder / "site" / "msprobe"
    for part in ("", "pytorch", "core"):
        (installed / part).mkdir(parents=True)
        (installed / part / "__init__.py").write_text(f"name = {part!r}\n")
    (installed / "pytorch" / "monitor.py").write_text("")
    monkeypatch.syspath_prepend(str(installed.parent))
    from msprobe.core import name  # type: ignore[import-not-found]

    assert name == "core"
    import msprobe.pytorch

    assert not hasattr(msprobe.pytorch, "name")
    assert program.told("msprobe") == [{"installed": [str(installed)]}]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("msprobe.pytorch.monitor")
    with pytest.raises(ImportError):
        from msprobe.pytorch import TrainerMon  # noqa: F401
    absent = [each["name"] for each in program.told("absent")]
    assert sorted(set(absent)) == [
        "msprobe.pytorch.TrainerMon", "msprobe.pytorch.monitor", "msprobe.pytorch.name",
    ]  # fmt: skip


def test_the_tokens_of_a_module_capture_can_be_read(program: Program) -> None:
    """The records of an embedding have its table beside the ids."""
    program.configure("L0", "tensor")
    msprobe_engines.run("vllm-ascend", ENGINE_FILE)
    dump = open_dump(program.dump)
    read = [token_ids(run) for run in passes_of(dump, dump.processes[0])]
    assert [each and each.ids.tolist() for each in read] == [[0, 1, 2, 3, 4], [0, 1], [0]]


def test_golden_is_made_of_the_capture_and_compares(program: Program, tmp_path: Path) -> None:
    checkpoint = DATA.parent / "gguf"
    program.configure("L0", "tensor")
    engine = msprobe_engines.VllmAscend(ENGINE_FILE)
    engine.model = LlamaForCausalLM.from_pretrained(checkpoint).eval()
    engine.model.model.layers[1].mlp.down_proj.weight.data *= 1.02
    ids = torch.tensor([[5, 17, 3, 20, 22]])
    with torch.no_grad():
        engine._start_dump_data(scheduled_tokens={"r": 5})
        engine.model(ids)
        engine._finalize_dump_data()
    words = ["llm", "golden", "--model", checkpoint, "--like", program.dump, "-o", tmp_path / "g"]
    done = CliRunner().invoke(ait, list(map(str, words)))
    assert done.exit_code == 0, done.stderr
    words = ["llm", "compare", "-gp", tmp_path / "g", "-mp", program.dump, "-o", tmp_path / "r"]
    done = CliRunner().invoke(ait, [*map(str, words), "-j", "1", "--json"])
    report = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == 1
    assert [each["op"] for each in report["origins"]] == [
        "Module.model.layers.1.mlp.down_proj.Linear.forward.0"
    ]


# The launcher


def launched(folder: Path, code: str, **config: Any) -> TorchSummary:
    path = folder / "config.json"
    path.write_text(json.dumps({"dump_path": str(folder / "dump"), **config}))
    plan = plan_msprobe_dump([sys.executable, "-c", code], path, None, os.environ)
    return run_msprobe_dump(plan, os.environ)


def test_a_child_of_the_program_is_captured_and_nothing_is_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    child = [sys.executable, msprobe_engines.__file__, "vllm-ascend", ENGINE_FILE]
    summary = launched(
        tmp_path, f"import subprocess; subprocess.run({child}, check=True)", level="L0"
    )
    assert (summary.exit_code, summary.problems) == (0, ())
    (process,) = summary.processes
    assert (process.steps, process.modules, process.end) == ({0, 1, 2}, 24, "exit")
    assert [note.partition(";")[0] for note in summary.notes] == [
        f"the program names {ENGINE_FILE}"
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.json", "dump"]
    assert sorted(each.name for each in summary.dump_dir.iterdir()) == [
        "ledger", "step0", "step1", "step2",
    ]  # fmt: skip


REPORTS = "from ait_llm.dump.inject.channel import report\n"


@pytest.mark.parametrize(
    ("code", "config", "words"),
    [
        ("pass", {}, "never imported msprobe.pytorch"),
        ("raise SystemExit(3)", {}, r"failed \(exit code 3\) before a capture was started"),
        ("report('pytorch')", {}, "made neither a PrecisionDebugger nor an AclGraphDumper"),
        ("report('debugger')", {}, "never called its start"),
        (
            "report('debugger'); report('start')",
            {"step": [4], "rank": [1], "dump_enable": False, "request_id": "r"},
            "dump_enable is false.*no step was one of 4; no rank was one of 1; .* request r",
        ),
    ],
)
def test_a_capture_of_nothing_says_why(
    tmp_path: Path, code: str, config: dict[str, Any], words: str
) -> None:
    summary = launched(tmp_path, REPORTS + code, **config)
    assert not summary.complete
    (problem,) = summary.problems
    assert re.search(words, problem), problem


Write = Callable[[Path], None]


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "cannot be read"),
        (lambda path: path.write_text("{'task':"), "not valid JSON"),
        (lambda path: path.write_text("[1]"), "one JSON object"),
        (lambda path: path.write_text('{"task": "tensors"}'), "task: 'tensors' is none of"),
        (lambda path: path.write_text("{}"), "dump_path: .* is missing"),
    ],
)
def test_a_configuration_that_cannot_hold_is_one_sentence(
    tmp_path: Path, write: Write, words: str
) -> None:
    path = tmp_path / "config.json"
    write(path)
    with pytest.raises(UsageError, match=words) as error:
        plan_msprobe_dump([sys.executable], path, None, os.environ)
    assert "\n" not in str(error.value)
