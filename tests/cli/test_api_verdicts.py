"""What a comparison of API-level dumps says and ends with: the same in every table and format."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from api_dumps import call, scalar, tensor, write_dump
from click.testing import CliRunner
from msprobe_samples import NAMES, sample
from torch import nn

from ait_llm.cli.main import ait
from ait_llm.dump.api import PrecisionDebugger

PEER = os.environ.get("AIT_LLM_PEER_PYTHON", "")
VIEWS = (
    ("--format", "csv"),
    ("--format", "csv", "--table-style", "release"),
    ("--format", "html"),
    ("--format", "csv", "jsonl"),
)
"""Every kind of table and report."""

LINEAR = "Functional.linear.0.forward"


def compared(golden: Path, mine: Path, out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result of a comparison."""
    sides = ("-gp", str(golden), "-mp", str(mine), "-o", str(out))
    ran = CliRunner().invoke(ait, ["llm", "compare", *sides, "--json", *words])
    assert ran.stdout, ran.stderr
    return ran.exit_code, json.loads(ran.stdout)


def code_in_every_view(golden: Path, mine: Path, out: Path, *words: str) -> int:
    """The exit code, which is the same in every view."""
    found = {
        compared(golden, mine, out / str(number), *view, *words)[0]
        for number, view in enumerate(VIEWS)
    }
    assert len(found) == 1, found
    return found.pop()


def record_of(golden: Path, mine: Path, out: Path) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Exit code and result of a comparison, and what its record of tensors ends with."""
    code, found = compared(golden, mine, out, "--format", "html", "jsonl")
    (page,) = out.glob("*.html")
    (record,) = out.glob("*.jsonl")
    lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    [end] = [each for each in lines if each["type"] == "total"]
    origins = [each for each in lines if each["type"] == "origin"]
    return code, found, {**end, "origins": origins, "page": page.read_text("utf-8")}


def captured(folder: Path, program: Callable[[], Any], task: str = "tensor") -> Path:
    """A capture of a program by us."""
    torch.manual_seed(0)
    PrecisionDebugger._reset()
    PrecisionDebugger(dump_path=str(folder), task=task, level="L1").start()
    try:
        program()
    finally:
        PrecisionDebugger.stop()
        PrecisionDebugger._reset()
    return folder


def captured_by(tool: str, way: tuple[str, str, str], folder: Path) -> Path:
    """A capture of one training program by msprobe or by us, each in a process of its own."""
    task, level, summary = way
    settings = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary}
    config = {"task": task, "dump_path": str(folder), "rank": [], "step": [], "level": level}
    path = folder.with_suffix(".json")
    path.write_text(json.dumps(config | {"risk_level": "ALL", task: settings}))
    program = Path(__file__).parents[1] / "support" / "api_program.py"
    python = PEER if tool == "msprobe" else sys.executable
    subprocess.run([python, str(program), tool, str(path)], check=True, capture_output=True)
    return folder


def unknown(dtype: str, shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    """A tensor of which a tool recorded nothing but type and shape."""
    nothing = dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    return tensor(dtype=dtype) | nothing | {"shape": list(shape)}


@pytest.mark.parametrize("dtype", ["torch.qint8", "torch.float8_e4m3fn", "torch.bits8", "float7"])
@pytest.mark.parametrize("words", [(), ("--allow-skip",)])
def test_a_value_without_data_never_passes(
    dtype: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    record = {LINEAR: call([unknown(dtype)], [unknown(dtype)])}
    golden, mine = (write_dump(tmp_path / side, record) for side in ("golden", "mine"))
    assert code_in_every_view(golden, mine, tmp_path / "out", *words) == 3


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_values_that_cannot_be_read_do_not_pass(tmp_path: Path) -> None:
    sides = []
    for scale in (1.0, 2.0):
        values = torch.quantize_per_tensor(torch.ones(4) * scale, 0.1, 0, torch.qint8)
        name = "Torch.neg.0.forward.output.0.pt"
        record = {
            "Torch.neg.0.forward": call([], [unknown("torch.qint8", (4,)) | {"data_name": name}])
        }
        dump = write_dump(tmp_path / str(scale), record, task="tensor")
        torch.save(values, dump.parent / "dump_tensor_data" / name)
        sides.append(dump)
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out") == 3


def test_statistics_of_8_bit_floats_that_differ_fail(tmp_path: Path) -> None:
    golden = write_dump(
        tmp_path / "golden", {LINEAR: call([], [tensor([1, 2], "torch.float8_e4m3fn")])}
    )
    mine = write_dump(
        tmp_path / "mine", {LINEAR: call([], [tensor([1, 3], "torch.float8_e4m3fn")])}
    )
    assert code_in_every_view(golden, mine, tmp_path / "out") == 1


def test_rounding_of_a_mean_near_zero_is_no_failure(tmp_path: Path) -> None:
    # as recorded of one program by msprobe and by us
    norms = {"Max": 2.769822120666504, "Min": -1.2}
    golden = tensor() | norms | {"Mean": 0.0, "Norm": 13.856343269348145, "shape": [2, 6, 16]}
    mine = golden | {"Mean": 5.723753138120458e-10, "Norm": 13.856344223022461}
    sides = [
        write_dump(tmp_path / name, {LINEAR: call([], [each])})
        for name, each in (("golden", golden), ("mine", mine))
    ]
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out") == 0


def test_statistics_that_one_tool_does_not_record_are_no_difference(tmp_path: Path) -> None:
    ids = tensor([3, 24], "torch.int64")
    golden = ids | {"Mean": None, "Norm": None}  # msprobe has none of integers
    name = "Functional.embedding.0.forward"
    sides = [
        write_dump(tmp_path / side, {name: call([each], [tensor()])})
        for side, each in (("golden", golden), ("mine", ids))
    ]
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out") == 0


class Normed(nn.Module):
    """A projection between two norms that are written out, as in a Llama."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(32, 32) / 5)
        self.last = nn.Parameter(torch.randn(32, 32) / 5)

    @staticmethod
    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        h = F.linear(self.norm(x), self.weight)
        if scale != 1.0:
            h = h * scale
        return F.linear(self.norm(h), self.last)


def normed(weight: float = 1.0, scale: float = 1.0) -> Callable[[], Any]:
    model = Normed()
    with torch.no_grad():
        model.weight.mul_(weight)

    def program() -> None:
        with torch.no_grad():
            model(torch.randn(4, 32) * 8, scale)

    return program


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_weight_that_is_two_percent_larger_is_blamed_itself(task: str, tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", normed(), task)
    mine = captured(tmp_path / "mine", normed(weight=1.02), task)
    assert code_in_every_view(golden, mine, tmp_path / "out") == 1
    _, found = compared(golden, mine, tmp_path / "one", "--format", "csv")
    assert found["tables"][0]["suspect"] == "Functional.linear.0.forward.input.1"
    (advice,) = (tmp_path / "one").glob("advisor*")
    assert "Suspect Nodes: Functional.linear.0.forward.input.1" in advice.read_text("utf-8")


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("words", [(), ("--allow-skip",)])
def test_a_scale_of_one_percent_in_mine_alone_fails(
    task: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    golden = captured(tmp_path / "golden", normed(), task)
    mine = captured(tmp_path / "mine", normed(scale=1.01), task)
    assert code_in_every_view(golden, mine, tmp_path / "out", *words) == 1


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_identical_runs_with_scalars_and_empty_tensors_are_healthy(
    task: str, tmp_path: Path
) -> None:
    def program() -> None:
        x = torch.randn(3, 4)
        total = torch.sum(x)
        torch.add(torch.mul(total, 2.0), torch.tensor(3))
        torch.relu(torch.zeros(0, 4))
        torch.cat([torch.zeros(0, 4), x])
        torch.stack([x, x]).unbind(0)

    golden, mine = (captured(tmp_path / side, program, task) for side in ("golden", "mine"))
    assert code_in_every_view(golden, mine, tmp_path / "out") == 0


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_weight_that_differs_is_called_a_weight(task: str, tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", normed(), task)
    mine = captured(tmp_path / "mine", normed(weight=1.02), task)
    code, _, record = record_of(golden, mine, tmp_path / "out")
    assert (code, record["origins"][0]["kind"]) == (1, "other weight")
    evidence = record["origins"][0]["evidence"]
    assert evidence.startswith("weights differ already: intensor1 (input.1) is not that of golden")


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize(("dtype", "width", "code"), [(torch.int32, 4, 0), (torch.int64, 5, 1)])
def test_whole_numbers_may_be_of_another_type_and_empty_tensors_of_no_other_shape(
    task: str, dtype: torch.dtype, width: int, code: int, tmp_path: Path
) -> None:
    def program(dtype: torch.dtype, width: int) -> Callable[[], None]:
        def run() -> None:
            torch.add(torch.arange(12, dtype=dtype), 1)
            torch.relu(torch.zeros(0, width))

        return run

    golden = captured(tmp_path / "golden", program(torch.int64, 4), task)
    mine = captured(tmp_path / "mine", program(dtype, width), task)
    assert code_in_every_view(golden, mine, tmp_path / "out") == code


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_is_healthy_against_its_copy(name: str, tmp_path: Path) -> None:
    root, copy = sample(name) / "golden", tmp_path / "copy"
    shutil.copytree(root, copy)
    assert code_in_every_view(root, copy, tmp_path / "out") == 0


def test_one_dump_given_twice_is_said_and_is_no_pass(tmp_path: Path) -> None:
    root = sample("L0_stat") / "golden"
    code, found, _ = record_of(root, root, tmp_path)
    assert code == 3
    assert f"golden and mine are both {root}" in json.dumps(found)


@pytest.mark.parametrize(("text", "code"), [("a", 0), ("b", 1)])
def test_text_that_was_saved_is_compared(text: str, code: int, tmp_path: Path) -> None:
    name = "mymod.custom.0.forward.input.0.npy"
    array = unknown("<U1", (1,)) | {"type": "numpy.ndarray", "data_name": name}
    sides = []
    for side, word in (("golden", "a"), ("mine", text)):
        record = {"mymod.custom.0.forward": call([array, tensor()], [tensor()])}
        dump = write_dump(tmp_path / side, record, task="tensor")
        np.save(dump.parent / "dump_tensor_data" / name, np.array([word]))
        sides.append(dump)
    # neither are values of the others there
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out", "--allow-skip") == code


def test_text_without_data_is_not_comparable_and_never_passes(tmp_path: Path) -> None:
    array = unknown("<U1", (1,)) | {"type": "numpy.ndarray"}
    record = {"mymod.custom.0.forward": call([array], [tensor()])}
    golden, mine = (write_dump(tmp_path / side, record) for side in ("golden", "mine"))
    assert code_in_every_view(golden, mine, tmp_path / "out") == 0
    _, found = compared(golden, mine, tmp_path / "one", "--format", "csv")
    [table] = found["tables"]
    assert (table["counts"], table["not_comparable"]) == ({"PASS": 1}, 1)


@pytest.mark.parametrize(("size", "code"), [([1, 2], 0), ([1, 3], 1)])
def test_sizes_that_a_call_was_given_are_compared(
    size: list[int], code: int, tmp_path: Path
) -> None:
    sides = []
    for side, value in (("golden", [1, 2]), ("mine", size)):
        given = {"type": "torch.Size", "value": value}
        record = {"Tensor.view.0.forward": call([tensor(), given], [tensor()])}
        sides.append(write_dump(tmp_path / side, record))
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out") == code


@pytest.mark.skipif(not PEER, reason="AIT_LLM_PEER_PYTHON is not set")
@pytest.mark.parametrize("way", [("tensor", "L1", "statistics"), ("statistics", "mix", "md5")])
def test_one_program_captured_by_msprobe_and_by_us_is_healthy(
    way: tuple[str, str, str], tmp_path: Path
) -> None:
    theirs, ours = (captured_by(tool, way, tmp_path / tool) for tool in ("msprobe", "ait"))
    assert code_in_every_view(theirs, ours, tmp_path / "out") == 0
    assert code_in_every_view(ours, theirs, tmp_path / "back") == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_fault_ends_with_1_in_every_view(name: str, tmp_path: Path) -> None:
    root = sample(name)
    assert code_in_every_view(root / "golden", root / "target", tmp_path) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_the_command_says(name: str, tmp_path: Path) -> None:
    root = sample(name)
    code, found, record = record_of(root / "golden", root / "target", tmp_path)
    assert (code, record["exit_code"], record["verdict"]) == (1, 1, "FAIL")
    named = [each for each in found["tables"] if each["suspect"]]
    assert [each["evidence"] for each in record["origins"]] == [each["evidence"] for each in named]
    for origin, table in zip(record["origins"], named, strict=True):
        assert table["suspect"].startswith(origin["op"])
    assert "<title>FAIL - ait llm compare</title>" in record["page"]


def test_the_page_of_a_recorded_run_against_its_copy_is_that_of_a_pass(tmp_path: Path) -> None:
    root, copy = sample("zoo_tensor") / "golden", tmp_path / "copy"
    shutil.copytree(root, copy)
    code, _, record = record_of(root, copy, tmp_path / "out")
    assert (code, record["exit_code"], record["verdict"]) == (0, 0, "PASS")


@pytest.mark.parametrize("words", [(), ("-da",)])
def test_a_missing_call_is_3_whatever_is_written(words: tuple[str, ...], tmp_path: Path) -> None:
    plain = {LINEAR: call([tensor([1, 2])], [tensor([-1, 2])])}
    more = {"Torch.relu.0.forward": call([tensor([-1, 2])], [tensor([0, 2])])}
    golden, mine = write_dump(tmp_path / "g", plain | more), write_dump(tmp_path / "m", plain)
    if words:
        assert compared(golden, mine, tmp_path / "out", *words)[0] == 3
    else:
        assert code_in_every_view(golden, mine, tmp_path / "out") == 3


def test_an_argument_that_is_another_number_is_told_with_both(tmp_path: Path) -> None:
    sides = [
        write_dump(
            tmp_path / side,
            {"Torch.clamp.0.forward": call([tensor(), scalar(value)], [tensor()])},
        )
        for side, value in (("golden", 0.25), ("mine", 1.0))
    ]
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out") == 1
    _, found = compared(sides[0], sides[1], tmp_path / "one", "--format", "csv")
    assert found["tables"][0]["suspect"] == "Torch.clamp.0.forward.input.1"
    assert found["tables"][0]["evidence"] == "it is 1.0 instead of 0.25"
    code, _, record = record_of(sides[0], sides[1], tmp_path / "page")
    assert (code, record["exit_code"], record["verdict"]) == (1, 1, "FAIL")
    [origin] = record["origins"]
    assert (origin["op"], origin["evidence"]) == (
        "Torch.clamp.0.forward",
        "it is 1.0 instead of 0.25",
    )


@pytest.mark.parametrize(
    ("golden", "mine"), [("cpu", "npu:0"), ("torch.float32", "torch.bfloat16")]
)
def test_where_and_in_which_type_a_run_computes_is_no_difference(
    golden: str, mine: str, tmp_path: Path
) -> None:
    sides = [
        write_dump(
            tmp_path / side, {"Tensor.to.0.forward": call([tensor(), scalar(value)], [tensor()])}
        )
        for side, value in (("golden", golden), ("mine", mine))
    ]
    assert code_in_every_view(sides[0], sides[1], tmp_path / "out") == 0


def in_type(dtype: torch.dtype) -> Callable[[], Any]:
    model = Normed().to(dtype)

    def program() -> None:
        x = (torch.randn(4, 32) * 8).to(dtype)
        with torch.no_grad():
            F.softmax(model(x).float(), dim=-1)

    return program


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_run_is_healthy_against_float32(
    task: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    golden = captured(tmp_path / "golden", in_type(torch.float32), task)
    mine = captured(tmp_path / "mine", in_type(dtype), task)
    assert code_in_every_view(golden, mine, tmp_path / "out", "--allow-skip") == 0


def test_a_tolerance_of_the_users_own_counts_in_every_view(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", normed())
    mine = captured(tmp_path / "mine", normed(weight=1.02))
    assert code_in_every_view(golden, mine, tmp_path / "out", "--tolerance", "0.1") == 0
