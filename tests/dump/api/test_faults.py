"""What the original tool loses, breaks or gets wrong, and this capture must not."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from api_captures import Captured, Debug, Read
from torch import nn

from ait_llm import open_dump

_KILLED = """
import os, signal, sys, torch
from ait_llm.dump.api import PrecisionDebugger
assert not any(name.startswith("ait_llm.compare") for name in sys.modules)  # it takes a while
debugger = PrecisionDebugger(dump_path=sys.argv[1], task=sys.argv[2])
debugger.start()
x = torch.arange(4.0)
for _ in range(50):
    torch.exp(x)
def kill(y):
    os.kill(os.getpid(), signal.SIGKILL)
torch.Tensor.map_(x, x, lambda a, b: kill(a))
"""


@pytest.mark.parametrize("task", ["tensor"])
def test_killed_process_leaves_every_call_on_disk_and_the_inputs_of_the_last(
    tmp_path: Path, task: str
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "dump"), task],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == -signal.SIGKILL, done.stderr
    (process,) = open_dump(tmp_path / "dump").processes
    assert process.state == "unfinished"
    assert "Torch.exp.49.forward at step 0" in (process.problem or "")
    captured = Captured(tmp_path / "dump")
    data = captured.data
    assert list(data) == [f"Torch.exp.{n}.forward" for n in range(50)] + ["Tensor.map_.0.forward"]
    assert "output" not in data["Tensor.map_.0.forward"]
    assert len(data["Tensor.map_.0.forward"]["input_args"]) == 3
    assert torch.equal(captured.tensor("Torch.exp.49.forward.output.0.pt"), torch.arange(4.0).exp())
    assert torch.equal(captured.tensor("Tensor.map_.0.forward.input.0.pt"), torch.arange(4.0))


def test_exception_in_a_call_does_not_stop_the_recording(debug: Debug, captured: Read) -> None:
    debugger = debug()
    debugger.start()
    with pytest.raises(RuntimeError, match="shapes"):
        torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="expand"):
        F.linear(torch.ones(2, 3), torch.ones(2, 3), torch.ones(5))
    torch.exp(torch.ones(2))
    debugger.stop()

    data = captured().data
    assert list(data) == [
        "Torch.matmul.0.forward",
        "Functional.linear.0.forward",
        "Torch.exp.0.forward",
    ]
    assert len(data["Torch.matmul.0.forward"]["input_args"]) == 2
    assert data["Torch.matmul.0.forward"]["output"] == [None]
    assert (
        "Torch.matmul.0.forward raised" in (captured().folder / "dump_error_info.log").read_text()
    )


def test_exception_in_a_module_does_not_move_later_modules_into_it(
    debug: Debug, captured: Read
) -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    model = nn.ModuleDict({"bad": Raises(), "good": nn.Linear(2, 2)})
    debugger = debug(level="mix")
    debugger.start(nn.ModuleList([model]))
    with pytest.raises(ValueError, match="no"):
        model["bad"](torch.ones(2))
    model["good"](torch.ones(2))
    debugger.stop()

    construct = captured().json("construct.json")
    assert construct["Module.0.good.Linear.forward.0"] is None
    assert captured().data["Module.0.bad.Raises.forward.0"]["output"] == [None]


@pytest.mark.parametrize("summary", ["statistics", "md5"])
def test_float8_tensors_are_recorded_and_left_alone(
    debug: Debug, captured: Read, summary: str
) -> None:
    x = torch.tensor([1.0, -2.0, 448.0]).to(torch.float8_e4m3fn)
    before = x.view(torch.uint8).clone()
    debugger = debug("tensor", section={"summary_mode": summary}, precision="high")
    debugger.start()
    y = x.to(torch.float32)
    debugger.stop()

    assert torch.equal(x.view(torch.uint8), before)
    assert x.untyped_storage().nbytes() == 3
    entry = captured().data["Tensor.to.0.forward"]["input_args"][0]
    assert entry["dtype"] == "torch.float8_e4m3fn"
    assert (entry["Max"], entry["Min"], entry["Mean"]) == (448.0, -2.0, 149.0)
    assert entry["Norm"] == pytest.approx(math.sqrt(1 + 4 + 448**2))
    assert torch.equal(captured().tensor(entry["data_name"]).float(), y)


def test_function_that_returns_a_dictionary_without_tensors_is_not_disturbed(
    debug: Debug, captured: Read
) -> None:
    class Module:
        __name__ = "mine"

        @staticmethod
        def count(x: torch.Tensor) -> dict[str, int]:
            return {"elements": x.numel()}

    debugger = debug()
    debugger.register_custom_api(Module, "count", "mine")
    debugger.start()
    assert Module.count(torch.ones(3, requires_grad=True)) == {"elements": 3}
    debugger.stop()

    output = captured().data["mine.count.0.forward"]["output"]
    assert output == [{"elements": {"type": "int", "value": 3}}]


@pytest.mark.parametrize("precision", ["low", "high"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32, torch.uint8])
def test_mean_and_norm_of_wide_types_and_integers_are_there(
    debug: Debug, captured: Read, precision: str, dtype: torch.dtype
) -> None:
    x = torch.tensor([3, 4, 12], dtype=dtype)
    debugger = debug(precision=precision)
    debugger.start()
    torch.abs(x)
    debugger.stop()

    entry = captured().data["Torch.abs.0.forward"]["input_args"][0]
    assert [entry[key] for key in ("Max", "Min", "Norm")] == [12, 3, 13.0]
    assert entry["Mean"] == pytest.approx(19 / 3, rel=1e-15)


def test_large_integers_are_exact(debug: Debug, captured: Read) -> None:
    x = torch.tensor([2**62 + 1, -(2**61) - 1])
    debugger = debug()
    debugger.start()
    torch.bitwise_not(x)
    debugger.stop()

    entry = captured().data["Torch.bitwise_not.0.forward"]["input_args"][0]
    assert (entry["Max"], entry["Min"]) == (2**62 + 1, -(2**61) - 1)


@pytest.mark.parametrize("precision", ["low", "high"])
def test_norm_of_float16_does_not_overflow(debug: Debug, captured: Read, precision: str) -> None:
    x = torch.full((1000,), 60000.0, dtype=torch.float16)
    debugger = debug(precision=precision)
    debugger.start()
    torch.abs(x)
    debugger.stop()

    entry = captured().data["Torch.abs.0.forward"]["input_args"][0]
    exact = float(x[0]) * math.sqrt(1000)
    assert entry["Norm"] == pytest.approx(exact, rel=1e-6)
    assert entry["Mean"] == pytest.approx(60000, rel=1e-3)


def test_positional_dtypes_devices_and_other_values_are_recorded(
    debug: Debug, captured: Read
) -> None:
    x = torch.ones(2)
    debugger = debug()
    debugger.register_custom_api(_Functions, "anything", "mine")
    debugger.start()
    x.to(torch.float16)
    x.to(torch.device("cpu"))
    _Functions.anything(b"\x01\x02", 1 + 2j, torch.channels_last, x.shape, ..., slice(1, None))
    debugger.stop()

    data = captured().data
    assert data["Tensor.to.0.forward"]["input_args"][1] == {
        "type": "torch.dtype",
        "value": "torch.float16",
    }
    assert data["Tensor.to.1.forward"]["input_args"][1] == {
        "type": "torch.device",
        "value": "cpu:None",
    }
    assert data["mine.anything.0.forward"]["input_args"] == [
        {"type": "bytes", "value": "0102"},
        {"type": "complex", "value": "(1+2j)"},
        {"type": "torch.memory_format", "format": "channels_last"},
        {"type": "torch.Size", "value": [2]},
        {"type": "ellipsis", "value": "..."},
        {"type": "slice", "value": [1, None, None]},
    ]


class _Functions:
    @staticmethod
    def anything(*values: object) -> None:
        return None


def test_values_of_every_other_kind_have_right_numbers(debug: Debug, captured: Read) -> None:
    debugger = debug("tensor")
    debugger.start()
    torch.neg(torch.tensor(2.5))
    torch.abs(torch.tensor(-3))
    torch.logical_not(torch.tensor([True, False]))
    torch.abs(torch.empty(0, 3))
    torch.abs(torch.tensor([3 + 4j, 0j]))
    torch.abs(torch.tensor([1.0, math.nan]))
    torch.abs(torch.tensor([1.0, -math.inf]))
    torch.abs(torch.ones(2, device="meta"))
    debugger.stop()

    data = captured().data

    def four(name: str, key: str = "input_args") -> list[object]:
        entry = data[f"{name}.forward"][key][0]
        return [entry[number] for number in ("Max", "Min", "Mean", "Norm")]

    assert four("Torch.neg.0", "output") == [-2.5, -2.5, -2.5, 2.5]
    assert four("Torch.abs.0") == [-3, -3, -3, 3]
    assert four("Torch.logical_not.0") == [True, False, None, None]
    assert four("Torch.abs.1") == [None] * 4
    assert four("Torch.abs.2") == [5.0, 0.0, 2.5, 5.0]
    assert all(math.isnan(value) for value in four("Torch.abs.3"))
    assert four("Torch.abs.4") == [1.0, -math.inf, -math.inf, math.inf]
    assert four("Torch.abs.5") == [None] * 4
    for name in ("Torch.abs.1", "Torch.abs.5"):
        assert "data_name" not in data[f"{name}.forward"]["input_args"][0]


def test_in_place_calls_record_the_value_before_and_after(debug: Debug, captured: Read) -> None:
    x = torch.arange(3.0)
    debugger = debug("tensor", section={"summary_mode": "md5"})
    debugger.start()
    x += 1
    x.mul_(2)
    debugger.stop()

    data = captured().data
    saved = captured().tensor
    for name, before in (("__iadd__", torch.arange(3.0)), ("mul_", torch.arange(3.0) + 1)):
        record = data[f"Tensor.{name}.0.forward"]
        after = before + 1 if name == "__iadd__" else before * 2
        assert torch.equal(saved(record["input_args"][0]["data_name"]), before)
        assert torch.equal(saved(record["output"][0]["data_name"]), after)
        assert record["input_args"][0]["md5"] != record["output"][0]["md5"]


def test_tensor_that_is_passed_on_is_stored_once_and_a_changed_one_again(
    debug: Debug, captured: Read
) -> None:
    x = torch.randn(64, 128)
    debugger = debug("tensor")
    debugger.start()
    y = torch.exp(x)
    torch.sin(y)
    y.numpy()[0, 0] = 7.0  # behind torch's back
    torch.cos(y)
    debugger.stop()

    folder = captured().folder / "dump_tensor_data"
    inodes = {path.name: path.stat().st_ino for path in folder.iterdir()}
    passed_on = inodes["Torch.sin.0.forward.input.0.pt"]
    assert inodes["Torch.exp.0.forward.output.0.pt"] == passed_on
    assert inodes["Torch.cos.0.forward.input.0.pt"] != passed_on
    assert captured().tensor("Torch.cos.0.forward.input.0.pt")[0, 0] == 7.0


def test_one_visible_processor_is_enough(debug: Debug, captured: Read, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    debugger = debug(section={"summary_mode": "md5"})
    debugger.start()
    torch.exp(torch.tensor([1.0, 2.0, 3.0]))
    debugger.stop()

    assert captured().data["Torch.exp.0.forward"]["input_args"][0]["md5"] == "b20e96b1"


def test_software_of_a_device_that_is_not_there_is_not_complained_of() -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ASCEND", "ATB", "LD_"))
    }
    program = """
import sys, tempfile, torch
from ait_llm.dump.api import PrecisionDebugger
with tempfile.TemporaryDirectory() as folder:
    PrecisionDebugger(dump_path=folder, level="L1")
    PrecisionDebugger.start()
    torch.exp(torch.ones(2))
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stderr == ""


def test_files_of_an_earlier_run_are_gone(debug: Debug, dump_path: Path) -> None:
    ended = 2**22 + 1  # no process has this number
    for folder in (f"proc{ended}", "rank3"):
        data = dump_path / "step0" / folder / "dump_tensor_data"
        data.mkdir(parents=True)
        (data / "Torch.old.0.forward.input.0.pt").touch()
        (data.parent / "dump.json").write_text("{}")
    foreign = dump_path / "step0" / f"proc{ended + 1}"
    foreign.mkdir()
    (foreign / "notes.txt").touch()
    late = dump_path / "step7" / "rank3"
    late.mkdir(parents=True)
    (late / "dump.json").write_text("{}")
    debugger = debug("tensor")
    debugger.start(rank_id=3)
    torch.exp(torch.ones(2))
    debugger.stop()

    left = {path.name for path in (dump_path / "step0").iterdir()}
    assert left == {"rank3", foreign.name}
    assert {path.name for path in (dump_path / "step0/rank3/dump_tensor_data").iterdir()} == {
        "Torch.exp.0.forward.input.0.pt",
        "Torch.exp.0.forward.output.0.pt",
    }
    assert not late.exists()


def test_a_long_step_costs_no_more_for_each_call_than_a_short_one(
    debug: Debug, captured: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda f, d, o: written.append(len(d)) or pwrite(f, d, o))
    debugger = debug(extra_info=False)
    debugger.start()
    x = torch.ones(2)
    for _ in range(300):
        torch.exp(x)
    debugger.stop()

    size = (captured().folder / "dump.json").stat().st_size
    assert len(captured().data) == 300
    assert sum(written) < 3 * size


def test_unwritable_data_are_reported_and_the_program_goes_on(debug: Debug, captured: Read) -> None:
    debugger = debug("tensor")
    debugger.start()
    torch.exp(torch.ones(2))
    folder = captured().folder / "dump_tensor_data"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    assert torch.equal(torch.sin(torch.zeros(2)), torch.zeros(2))
    debugger.stop()

    assert json.loads((captured().folder / "dump.json").read_text())
    assert "Torch.sin.0.forward" in (captured().folder / "dump_error_info.log").read_text()


def test_forked_children_record_nothing_and_break_nothing(debug: Debug, captured: Read) -> None:
    x = torch.ones(2)
    debugger = debug("tensor")
    debugger.start()
    torch.exp(x)
    child = os.fork()
    if not child:
        torch.sin(x)
        debugger.stop()
        debugger.step()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    torch.cos(x)
    debugger.stop()

    assert list(captured().data) == ["Torch.exp.0.forward", "Torch.cos.0.forward"]


def test_traced_programs_are_left_alone(debug: Debug, captured: Read) -> None:
    debugger = debug()
    debugger.start()
    with pytest.warns(DeprecationWarning, match="trace"):
        traced = torch.jit.trace(lambda x: torch.exp(x) + 1, torch.ones(2))
    debugger.stop()

    assert [node.kind() for node in traced.graph.nodes()][-1] == "aten::add"
    assert sum(node.kind().startswith("aten::") for node in traced.graph.nodes()) == 2


def test_tensors_inside_vmap_are_recorded_without_values(debug: Debug, captured: Read) -> None:
    debugger = debug("tensor")
    debugger.start()
    result = torch.func.vmap(torch.exp)(torch.zeros(2, 3))
    debugger.stop()

    assert torch.equal(result, torch.ones(2, 3))
    entry = captured().data["Torch.exp.0.forward"]["input_args"][0]
    assert (entry["type"], entry["shape"], entry["Max"]) == ("BatchedTensor", [3], None)


def test_numpy_values_are_recorded(debug: Debug, captured: Read) -> None:
    debugger = debug()
    debugger.register_custom_api(_Functions, "anything", "mine")
    debugger.start()
    _Functions.anything(np.float32(1.5), np.arange(3), np.array(["a"]))
    debugger.stop()

    scalar, array, texts = captured().data["mine.anything.0.forward"]["input_args"]
    assert scalar == {"type": "float32", "value": 1.5}
    assert array == {
        "type": "numpy.ndarray",
        "dtype": "int64",
        "shape": [3],
        "Max": 2,
        "Min": 0,
        "Mean": 1.0,
        "Norm": pytest.approx(math.sqrt(5)),
    }
    assert (texts["dtype"], texts["Max"]) == ("<U1", None)


def test_variables_of_frames_can_be_looked_at_while_a_closure_is_captured(
    debug: Debug, captured: Read
) -> None:
    """As debuggers, tracebacks and test runners do."""
    seen: list[str] = []
    factor = 3

    def scaled(x: torch.Tensor) -> torch.Tensor:
        frame = sys._getframe()
        while frame is not None:
            seen.extend(frame.f_locals)
            frame = frame.f_back
        return x * factor

    functions = types.SimpleNamespace(scaled=scaled)
    debugger = debug()
    debugger.register_custom_api(functions, "scaled", "mine")
    debugger.start()
    assert scaled(torch.ones(2)).tolist() == [3, 3]
    debugger.stop()

    assert "factor" in seen
    assert list(captured().data) == ["mine.scaled.0.forward"]
    assert scaled(torch.ones(2)).tolist() == [3, 3]
