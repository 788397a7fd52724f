"""A decoder on eight ranks against the same on one: captured, compared, and the faulty rank named.

The capture is made once: four steps, the last three with a fault each on one of the ranks.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait

PROGRAM = Path(__file__).with_name("programs") / "sharded_decoder.py"
PAGE = (Path(__file__).parents[2] / "docs" / "api-compare.md").read_text(encoding="utf-8")
LAYER = "Module.layers.1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Dumps of one rank and of eight."""
    folders = []
    for world in (1, 8):
        folder = tmp_path_factory.mktemp(f"world{world}")
        done = subprocess.run(
            [sys.executable, PROGRAM, folder, str(world)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        folders.append(folder / "dump")
    return folders[0], folders[1]


def compare(runs: tuple[Path, Path], step: int, output: Path, *words: object) -> Result:
    golden, mine = (run / f"step{step}" for run in runs)
    given = ("llm", "compare", "-gp", golden, "-mp", mine, "-o", output, *words)
    return CliRunner().invoke(ait, [str(word) for word in given])


def layouts(output: Path) -> dict[str, str]:
    (path,) = output.glob("layout_*.yaml")
    found: dict[str, str] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("golden_first", [True, False])
def test_every_tensor_of_one_rank_is_found_on_eight(
    runs: tuple[Path, Path], golden_first: bool, tmp_path: Path
) -> None:
    result = compare(runs if golden_first else runs[::-1], 0, tmp_path, "--json")
    (step,) = json.loads(result.stdout)["steps"]
    assert result.exit_code == 0, result.stderr
    assert step["counts"] == {"PASS": 279}
    assert (step["communication"], step["missing"], step["problems"]) == (5, 0, [])


def test_each_kind_of_layout_is_inferred(runs: tuple[Path, Path], tmp_path: Path) -> None:
    compare(runs, 0, tmp_path)
    found = layouts(tmp_path)
    expected = {
        "Functional.embedding.0.forward.input.0": "ids 7+7+6+6+6+6+6+6",
        "Functional.embedding.0.forward.input.1": "shard 0",
        "Functional.embedding.0.forward.output.0": "rows 7+7+6+6+6+6+6+6",
        f"{LAYER}.attention.qkv.ColumnParallelLinear.forward.0.parameters.weight": (
            "shard 0 blocks 4+4+4"
        ),
        f"{LAYER}.attention.qkv.ColumnParallelLinear.forward.0.output.0": "shard 2 blocks 4+4+4",
        "Functional.softmax.0.forward.output.0": "shard 1",
        "Functional.linear.1.forward.input.1": "shard 1",
        "Functional.linear.1.forward.output.0": "sum",
        f"{LAYER}.attention.out.RowParallelLinear.forward.0.output.0": "replicate",
        "Torch.sub.1.forward.output.0": "shard 2",
    }
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("step", "suspect", "rank", "why"),
    [
        (1, "Functional.linear.4.forward.input.1", 3, "nothing captured before it on any rank"),
        (2, "Functional.linear.3.forward.output.0", 5, "its output differs, and nothing before"),
        (3, "Distributed.all_reduce.3.forward.output.0", 2, "its inputs are right on all ranks"),
    ],
)
def test_a_fault_is_named_with_its_rank(
    runs: tuple[Path, Path], step: int, suspect: str, rank: int, why: str, tmp_path: Path
) -> None:
    result = compare(runs, step, tmp_path, "-da", "--json", "--format", "csv")
    (found,) = json.loads(result.stdout)["steps"]
    assert result.exit_code == 1
    assert (found["suspect"]["name"], found["suspect"]["ranks"]) == (suspect, [rank])
    (first,) = found["first"]
    assert (first["rank"], first["op"]) == (rank, suspect.rpartition(".forward.")[0] + ".forward")
    assert why in first["why"]
    (path,) = tmp_path.glob("compare_result_layout_*.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["Result"] == "FAIL"]
    assert (rows[0]["NPU Name"], rows[0]["Rank"]) == (suspect, str(rank))


def test_the_page_shows_what_is_printed(
    runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = next(
        block for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) if "step2" in block
    )
    command, _, expected = shown.partition("\n")
    for side, run in zip(("golden", "mine"), runs, strict=True):
        (tmp_path / side).symlink_to(run)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(ait, shlex.split(command.removeprefix("$ ait ")))
    normal = [
        re.sub(r"_\d{14}\b", "", re.sub(r"/\S*/report/", "report/", text)).splitlines()
        for text in (done.stdout, expected)
    ]
    assert normal[0] == normal[1]


def test_layouts_can_be_given_back_and_a_wrong_one_fails(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    compare(runs, 0, tmp_path / "first")
    (path,) = (tmp_path / "first").glob("layout_*.yaml")
    again = compare(runs, 0, tmp_path / "again", "--layout", path)
    assert again.exit_code == 0, again.output
    assert layouts(tmp_path / "again") == layouts(tmp_path / "first")
    path.write_text('"Functional.linear.*.forward.output.0": replicate\n', encoding="utf-8")
    wrong = compare(runs, 0, tmp_path / "wrong", "--layout", path)
    assert wrong.exit_code == 1
    assert "Functional.linear.1.forward.output.0" in wrong.output


def test_a_rank_that_lost_its_values_is_not_passed(runs: tuple[Path, Path], tmp_path: Path) -> None:
    golden, mine = runs
    copy = tmp_path / "copy" / "step0"
    for rank in range(8):
        folder = copy / f"rank{rank}"
        folder.mkdir(parents=True)
        for name in ("dump.json", "stack.json", "construct.json"):
            (folder / name).write_bytes((mine / "step0" / f"rank{rank}" / name).read_bytes())
        if rank != 6:
            target = mine / "step0" / f"rank{rank}" / "dump_tensor_data"
            (folder / "dump_tensor_data").mkdir()
            for file in target.iterdir():
                (folder / "dump_tensor_data" / file.name).hardlink_to(file)
    result = compare((golden, copy.parent), 0, tmp_path / "out", "--json")
    (step,) = json.loads(result.stdout)["steps"]
    assert result.exit_code == 3
    assert step["counts"].get("FAIL") is None
    assert all("rank6" in reason for reason in step["not_compared"])
