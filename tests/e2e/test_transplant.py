"""``ait llm transplant`` on programs that do not know of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.json_outputs import check

PROGRAM = Path(__file__).parent / "programs" / "attention_net.py"
HEALTHY, FAULTY = f"{sys.executable} {PROGRAM}", f"{sys.executable} {PROGRAM} scaling"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ait_llm", "llm", "transplant", "-o", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("found")
    words = ("--exec", FAULTY, "--golden-exec", HEALTHY, "--json", "--format", "html", "markdown")
    done = run(folder, *words)
    (made,) = folder.iterdir()
    return made, done


def test_the_operator_whose_transplant_heals_is_named_and_ends_with_1(
    found: tuple[Path, Any],
) -> None:
    _, done = found
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    check("transplant", result)
    (needed,) = (each for each in result["suspects"] if each["needed"])
    assert needed["op"] == "root.layers.1.attention.aten.mul.Tensor"
    assert needed["share"] == 1
    assert result["after"]["error"] == 0
    assert "golden's value at 1 place heals the answer" in done.stderr


def test_captures_are_removed_and_what_the_programs_print_is_kept(found: tuple[Path, Any]) -> None:
    folder, _ = found
    made = {each.name for each in folder.iterdir()}
    logs = {"golden.log", "mine.log", "all.log", "run2.log"}
    assert made == {*logs, "transplant.json", "transplant.html", "transplant.md"}


def test_the_page_and_the_summary_name_the_operator(found: tuple[Path, Any]) -> None:
    folder, _ = found
    for name in ("transplant.html", "transplant.md"):
        assert "root.layers.1.attention.aten.mul.Tensor" in (folder / name).read_text("utf-8")


def test_a_dump_stands_for_the_trusted_program(tmp_path: Path) -> None:
    dump = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", HEALTHY, "--type", "torch"]
    subprocess.run([*dump, "torch-op", "-o", str(tmp_path / "golden")], check=True)
    same = run(tmp_path, "--exec", HEALTHY, "-gp", str(tmp_path / "golden"))
    assert same.returncode == 0, same.stderr
    assert "the answer is golden's within rounding" in same.stdout
    other = run(tmp_path, "--exec", FAULTY, "-gp", str(tmp_path / "golden"), "--type", "torch")
    assert other.returncode == 1
    assert "root.layers.1.attention.o_proj" in other.stdout  # its input, which no module computes


def test_a_program_that_fails_ends_it_with_6(tmp_path: Path) -> None:
    broken = f"{sys.executable} -c 'import torch; raise SystemExit(9)'"
    done = run(tmp_path, "--exec", broken, "--golden-exec", HEALTHY, "--json")
    assert done.returncode == 6
    result = json.loads(done.stdout.splitlines()[-1])
    check("transplant", result)
    assert result["program_code"] == 9
    assert "mine.log has its words" in result["reason"]


def test_a_program_whose_model_runs_in_two_processes_is_not_looked_at(tmp_path: Path) -> None:
    twice = tmp_path / "twice.py"
    run_it = f"subprocess.run([sys.executable, {str(PROGRAM)!r}, *sys.argv[1:]], check=True)"
    twice.write_text(f"import subprocess, sys\nfor _ in range(2):\n    {run_it}\n")
    sides = ("--exec", f"{sys.executable} {twice} scaling", "--golden-exec")
    done = run(tmp_path / "out", *sides, f"{sys.executable} {twice}", "--type", "torch")
    assert done.returncode == 3, done.stdout
    assert "mine runs its model in 2 processes" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--golden-exec", HEALTHY), "give the side under suspicion once"),
        (("--exec", HEALTHY), "give the trusted side once"),
        (("--exec", HEALTHY, "--golden-exec", HEALTHY, "-gp", "x"), "give the trusted side once"),
        (("--exec", HEALTHY, "-gp", "nothing_here"), "nothing_here"),
    ],
)
def test_sides_given_wrongly_are_refused_before_anything_runs(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert not list(tmp_path.iterdir())
