"""Mistakes with folders, runs and sides are said in their own words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import Decoder, capture, ids
from click.testing import CliRunner

from ait_llm import compare
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.dump.earlier import earlier_runs
from ait_llm.dumps.ledger import Ledger, Seal
from ait_llm.dumps.processes import Process
from ait_llm.dumps.runs import newest_run


def process(pid: int, begun: str, ended: str | None, **facts: Any) -> Process:
    """A process that ran between two minutes of an hour."""
    header = {
        "host": facts.get("host", "node0"),
        "producer": "torch",
        "device": facts.get("device", "cpu"),
        "time": f"2026-11-22T10:{begun}:00Z",
        "program": "run.py",
        "arguments_mark": facts.get("mark", "a3f0"),
        "options": {"run": facts["run"]} if "run" in facts else {},
        "environment": {"RANK": facts["rank"]} if "rank" in facts else {},
    }
    seal = None if ended is None else Seal("exit", {"time": f"2026-11-22T10:{ended}:00Z"})
    ledger = Ledger(Path("x.jsonl"), header, seal, {}, None, (), (), {}, torn=False)
    return Process(-1, pid, (0,), ledger, ())


def kept(*processes: Process) -> list[int]:
    return [each.pid for each in newest_run(processes)]


def test_of_two_launches_the_later_one_is_taken() -> None:
    first, second = process(1, "00", "05", run="a"), process(2, "10", "15", run="b")
    assert kept(first, second) == kept(second, first) == [2]


def test_a_launch_that_was_killed_is_earlier_too() -> None:
    assert kept(process(1, "00", None, run="a"), process(2, "01", "02", run="b")) == [2]


def test_processes_of_one_launch_belong_together() -> None:
    assert kept(process(1, "00", "01", run="a"), process(2, "05", "06", run="a")) == [1, 2]


def test_each_rank_is_taken_from_its_own_newest_launch() -> None:
    old = [process(n, "00", "05", run="a", rank=str(n)) for n in (0, 1)]
    new = process(7, "10", "15", run="b", rank="1")
    assert kept(*old, new) == [0, 7]


def test_launches_on_two_machines_belong_together() -> None:
    first = process(1, "00", "05", run="a", host="node0")
    assert kept(first, process(2, "01", "06", run="b", host="node1")) == [1, 2]


def test_without_a_launcher_the_same_program_again_is_a_later_run() -> None:
    assert kept(process(1, "00", "05"), process(2, "06", "07")) == [2]


@pytest.mark.parametrize(
    ("begun", "facts"), [("04", {}), ("06", {"mark": "0c1e"}), ("06", {"rank": "1"})]
)
def test_without_a_launcher_processes_may_belong_together(
    begun: str, facts: dict[str, Any]
) -> None:
    assert kept(process(1, "00", "05"), process(2, begun, "09", **facts)) == [1, 2]


def test_a_process_that_is_not_sealed_may_run_beside_another() -> None:
    assert kept(process(1, "00", None), process(2, "06", "07")) == [1, 2]


def two_runs(out: Path) -> None:
    """A run of a broken model, and later one of the right model in the same folder."""
    broken = Decoder()
    with torch.no_grad():
        broken.head.weight.mul_(2)
    capture(broken, out, ids())
    me, dump = f"cpu_{os.getpid()}", out / "ait_dump"
    ledger = dump / "ledger" / f"{me}.jsonl"
    text = ledger.read_text().replace(me, "cpu_1").replace(f'"pid":{os.getpid()}', '"pid":1')
    times = text.split('"time":"')
    early = '"time":"'.join([times[0], *("2025" + each[4:] for each in times[1:])])
    (dump / "ledger" / "cpu_1.jsonl").write_text(early)
    (dump / "torch_tensors" / me).rename(dump / "torch_tensors" / "cpu_1")
    ledger.unlink()
    capture(Decoder(), out, ids())


def test_the_newest_of_two_runs_in_one_folder_is_compared(tmp_path: Path) -> None:
    capture(Decoder(), tmp_path / "golden", ids())
    two_runs(tmp_path / "mine")
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert report.verdict is Verdict.PASS
    assert {item.record.pid for item in report.comparisons} == {os.getpid()}
    [problem] = report.problems
    assert problem.side == "mine"
    assert not problem.decides
    assert "an earlier run lies in the same folder and was left out: process 1 of 2025-" in (
        problem.text
    )
    assert f"taken was process {os.getpid()} of 20" in problem.text


def test_what_lies_in_an_output_is_told_before_a_capture(tmp_path: Path) -> None:
    assert earlier_runs(tmp_path / "ait_dump") is None
    two_runs(tmp_path)
    said = earlier_runs(tmp_path / "ait_dump")
    assert said is not None
    assert "holds the capture of 2 processes already, the last of 20" in said


def test_a_dump_compared_with_itself_is_no_result(tmp_path: Path) -> None:
    capture(Decoder(), tmp_path / "golden", ids())
    golden = str(tmp_path / "golden" / "ait_dump")
    words = ["-gp", golden, "-mp", f"{golden}/", "-o", str(tmp_path)]
    result = CliRunner().invoke(ait, ["llm", "compare", *words])
    assert result.exit_code == 3
    assert "golden and mine are both" in " ".join(result.output.split())


@pytest.mark.parametrize("golden", [torch.float32, torch.bfloat16])
def test_a_golden_side_of_lower_precision_is_noted(tmp_path: Path, golden: torch.dtype) -> None:
    mine = torch.bfloat16 if golden is torch.float32 else torch.float32
    capture(Decoder().to(golden), tmp_path / "golden", ids())
    capture(Decoder().to(mine), tmp_path / "mine", ids())
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert report.exit_code() == 0
    found = [problem.text for problem in report.problems if not problem.decides]
    expected = ["golden computes in bf16 and mine in float; if mine is the trusted run, exchange "]
    assert [text[: len(expected[0])] for text in found] == expected * (golden is torch.bfloat16)
