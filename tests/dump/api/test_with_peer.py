"""msprobe itself reads our dumps, and finds in them what is in its own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from api_captures import Captured

PEER = os.environ.get("AIT_LLM_PEER_PYTHON")
PROGRAM = Path(__file__).parents[2] / "support" / "api_program.py"
pytestmark = pytest.mark.skipif(PEER is None, reason="AIT_LLM_PEER_PYTHON is not set")


def capture(
    tool: str, folder: Path, task: str, level: str, summary: str, program: Path = PROGRAM
) -> Captured:
    config = {
        "task": task,
        "dump_path": str(folder),
        "rank": [],
        "step": [],
        "level": level,
        "risk_level": "ALL",
        task: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary},
    }
    path = folder.with_suffix(".json")
    path.write_text(json.dumps(config))
    python = PEER if tool == "msprobe" else sys.executable
    more = ["save"] if level == "debug" else []
    environment = dict(os.environ)
    if tool == "ait":
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run(
        [str(python), str(program), tool, str(path), *more],
        check=True,
        capture_output=True,
        env=environment,
    )
    return Captured(folder)


def compared(target: Captured, golden: Captured, output: Path) -> list[dict[str, str]]:
    """The rows of the peer's own comparison."""
    name = "debug.json" if (target.folder / "debug.json").exists() else "dump.json"
    command = [str(Path(str(PEER)).parent / "msprobe"), "compare", "-o", str(output)]
    command += ["-tp", str(target.folder / name), "-gp", str(golden.folder / name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    found = list(output.glob("*.csv"))
    assert len(found) == 1, done.stdout + done.stderr
    with found[0].open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("task", "level", "summary"),
    [
        ("statistics", "L0", "statistics"),
        ("statistics", "L1", "statistics"),
        ("statistics", "mix", "statistics"),
        ("statistics", "L1", "md5"),
        ("statistics", "mix", "md5"),
        ("tensor", "L0", "statistics"),
        ("tensor", "L1", "statistics"),
        ("tensor", "mix", "md5"),
        ("tensor", "debug", "statistics"),
    ],
)
def test_peer_compares_our_dump_with_its_own(
    tmp_path: Path, task: str, level: str, summary: str
) -> None:
    ours = capture("ait", tmp_path / "ours", task, level, summary)
    theirs = capture("msprobe", tmp_path / "theirs", task, level, summary)

    mixed = compared(ours, theirs, tmp_path / "mixed")
    own = compared(theirs, theirs, tmp_path / "own")

    columns = [
        "NPU Name",
        "Bench Name",
        "NPU Dtype",
        "NPU Tensor Shape",
        "NPU Requires_grad",
        "Result",
        "Err_message",
    ]
    if summary == "md5" and task == "statistics":
        columns.append("NPU MD5")
    assert [[row[key] for key in columns] for row in mixed] == [
        [row[key] for key in columns] for row in own
    ]
    assert {row["Result"] for row in mixed} == {"pass"}
    assert "N/A" not in {row["Bench Name"] for row in mixed}
    if task == "tensor":
        assert {row["MaxAbsErr"] for row in mixed} <= {"0.0", "unsupported", "N/A"}
        assert ours.files == theirs.files
    if level != "debug":
        assert list(ours.data) == list(theirs.data)
        assert ours.json("construct.json").keys() >= theirs.json("construct.json").keys()


def test_calls_of_many_functions_have_the_names_order_and_arguments_of_the_peer(
    tmp_path: Path,
) -> None:
    zoo = PROGRAM.with_name("api_zoo.py")
    ours, theirs = (
        capture(tool, tmp_path / tool, "statistics", "L1", "statistics", zoo).data
        for tool in ("ait", "msprobe")
    )

    assert list(ours) == list(theirs)
    for name, record in theirs.items():
        assert _known(ours[name], record) == _known(record, record), name


def _known(entry: Any, golden: Any) -> Any:
    """An entry without its numbers, and without what the golden side does not say."""
    if isinstance(entry, dict) and isinstance(golden, dict):
        keys = [key for key in golden if key not in ("Max", "Min", "Mean", "Norm")]
        return {key: _known(entry.get(key), golden[key]) for key in keys}
    if isinstance(entry, list) and isinstance(golden, list) and len(entry) == len(golden):
        return [_known(*pair) for pair in zip(entry, golden, strict=True)]
    return entry
