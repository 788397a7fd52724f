"""``ait llm tokens`` on programs that do not know of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.json_outputs import check

PROGRAM = f"{sys.executable} {Path(__file__).parent / 'programs' / 'token_net.py'}"
AIT = [sys.executable, "-m", "ait_llm", "llm"]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*AIT, "tokens", "-o", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("found")
    words = ("--exec", f"{PROGRAM} fault", "--golden-exec", PROGRAM)
    done = run(folder, *words, "--json", "--format", "html", "markdown")
    (made,) = folder.iterdir()
    return made, done


def test_a_token_that_a_wrong_module_changed_is_told_with_that_module(
    found: tuple[Path, Any],
) -> None:
    folder, done = found
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    check("tokens", result)
    (first, *_) = (each for each in result["decisions"] if each["flips"])
    assert first["cause"] == "difference"
    assert first["contributions"][0]["op"] == "root.model.layers.1.mlp.down_proj"
    assert first["explained"] == pytest.approx(first["change"], rel=0.1)
    assert "differ by more than rounding" in done.stderr
    assert json.loads((folder / "tokens.json").read_text("utf-8")) == result


def test_the_page_shows_each_token_and_the_parts(found: tuple[Path, Any]) -> None:
    folder, _ = found
    page = (folder / "tokens.html").read_text("utf-8")
    assert "root.model.layers.1.mlp.down_proj" in page
    assert "change of the margin" in page
    assert "down_proj" in (folder / "tokens.md").read_text("utf-8")
    assert not [each for each in folder.iterdir() if each.is_dir()]


def test_another_type_changes_no_token_but_by_rounding(tmp_path: Path) -> None:
    done = run(tmp_path, "--exec", f"{PROGRAM} bfloat16", "--golden-exec", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ait llm tokens: PASS")


def test_other_settings_of_the_choice_fail(tmp_path: Path) -> None:
    done = run(tmp_path, "--exec", f"{PROGRAM} penalty", "--golden-exec", PROGRAM)
    assert done.returncode == 1
    assert "repetition_penalty is 1.3 instead of 1.0" in done.stdout


def test_dumps_are_compared_without_running_anything(tmp_path: Path) -> None:
    for name, words in (("golden", ""), ("same", ""), ("mine", " fault")):
        dump = [*AIT, "dump", "--exec", PROGRAM + words, "--type", "torch", "-er", "0,3"]
        subprocess.run([*dump, "-o", str(tmp_path / name)], check=True, capture_output=True)
    golden, same, mine = (str(tmp_path / each) for each in ("golden", "same", "mine"))
    equal = run(tmp_path / "out", "-gp", golden, "-mp", same)
    assert equal.returncode == 0, equal.stderr
    assert "all 4 tokens are golden's" in equal.stdout
    other = run(tmp_path / "out", "-gp", golden, "-mp", mine, "--json")
    assert other.returncode == 3
    result = json.loads(other.stdout.splitlines()[-1])
    assert {each["cause"] for each in result["decisions"] if each["flips"]} == {"undecided"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--golden-exec", PROGRAM), "give the side under suspicion once"),
        (("--exec", PROGRAM), "give the trusted side once"),
        (("-mp", "nothing", "-gp", "nothing"), "nothing"),
    ],
)
def test_sides_given_wrongly_are_refused_before_anything_runs(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_that_fails_ends_it_with_6(tmp_path: Path) -> None:
    broken = f"{sys.executable} -c 'import torch; raise SystemExit(9)'"
    done = run(tmp_path, "--exec", broken, "--golden-exec", PROGRAM, "--json")
    assert done.returncode == 6
    assert json.loads(done.stdout.splitlines()[-1])["program_code"] == 9
