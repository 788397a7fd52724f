"""A Llama in one process against the same on two ranks, operator by operator."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait
from ait_llm.dumps import open_dump

PROGRAM = Path(__file__).with_name("programs") / "sharded_llama.py"


def run_ranks(folder: Path, fault: str = "") -> Path:
    """The dump of both ranks."""
    folder.mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, PROGRAM, folder, fault],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), errors
    return folder / "dump"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps of one process, and of two healthy ranks."""
    place = tmp_path_factory.mktemp("sharded")
    subprocess.run([sys.executable, PROGRAM, place / "one"], check=True, capture_output=True)
    run_ranks(place / "two")
    return place


def compare(golden: Path, mine: Path, output: Path) -> Result:
    words = ("llm", "compare", "-gp", golden, "-mp", mine, "-o", output)
    return CliRunner().invoke(ait, [str(word) for word in words])


def test_healthy_ranks_pass(place: Path, tmp_path: Path) -> None:
    result = compare(place / "one" / "dump", place / "two" / "dump", tmp_path)
    assert result.exit_code in (0, 3), result.output
    counted = re.search(r"([0-9,]+) PASS", result.output)
    assert counted is not None
    assert int(counted[1].replace(",", "")) > 1300
    assert "FAIL" not in result.output


@pytest.mark.parametrize(
    ("fault", "operator"),
    [
        ("scale", "root.model.layers.1.self_attn ("),  # its `scaling` is told
        ("sum", "root.model.layers.0.mlp.down_proj ("),
    ],
)
def test_a_fault_of_one_rank_is_named(
    place: Path, tmp_path: Path, fault: str, operator: str
) -> None:
    mine = run_ranks(tmp_path / fault, fault)
    result = compare(place / "one" / "dump", mine, tmp_path / "out")
    assert result.exit_code == 1
    ranks = {each.header["environment"]["RANK"]: each.pid for each in open_dump(mine).processes}
    started = result.output.partition("started")[2].partition("golden counterpart")[0]
    assert " ".join(started.split()).startswith(operator)
    assert f"_{ranks['1']}" in started


def test_a_collective_is_recorded_when_it_is_through(place: Path) -> None:
    """Its result is the sum of what the ranks brought, on each of them."""
    brought: dict[str, list[np.ndarray]] = {}
    received: dict[str, list[np.ndarray]] = {}
    for operation in open_dump(place / "two" / "dump").operations():
        if operation.type == "c10d.allreduce_.default":
            brought.setdefault(operation.name, []).append(operation.inputs[0].nd())
            received.setdefault(operation.name, []).append(operation.outputs[0].nd())
    assert len(brought) == 5
    for name, parts in brought.items():
        assert len(parts) == 2
        for result in received[name]:
            np.testing.assert_allclose(result, sum(parts), rtol=1e-5, atol=1e-6)
