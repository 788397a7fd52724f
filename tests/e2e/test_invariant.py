"""``ait llm invariant`` on a program that does not know of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ait_llm.cli.main import ait
from ait_llm.schemas import read_schema
from tests.support.json_outputs import check

PROGRAM = Path(__file__).parent / "programs" / "padding_net.py"


def run(folder: Path, *words: str, fault: bool = False) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} {PROGRAM}{' fault' if fault else ''}"
    command = [sys.executable, "-m", "ait_llm", "llm", "invariant", "--exec", program]
    return subprocess.run(
        [*command, "-o", str(folder), *words], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("faulty")
    words = ("--changes", "again", "padding-left", "--json", "--format", "html", "markdown")
    return folder, run(folder, *words, fault=True)


def test_a_mask_that_ignores_padding_is_named_and_ends_with_1(faulty: tuple[Path, Any]) -> None:
    _, done = faulty
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    check("invariant", found)
    states = {each["name"]: each["state"] for each in found["changes"]}
    assert states == {"again": "held", "padding-left": "broken"}
    (broken,) = (each for each in found["changes"] if each["state"] == "broken")
    assert broken["origin"]["op"].startswith("root.model.layers.1.self_attn")
    assert broken["flip"]["place"] == 11  # the first that was generated
    assert found["next"].startswith("ait llm compare -gp")


def test_captures_of_what_holds_are_removed_and_of_what_breaks_are_kept(
    faulty: tuple[Path, Any],
) -> None:
    folder, _ = faulty
    (made,) = folder.iterdir()
    assert {each.name for each in made.iterdir()} == {
        *("plain", "padding-left", "again.log", "padding-left.log", "invariant.json"),
        *("ait_cmp_report_padding-left.html", "invariant.html", "invariant.md"),
    }
    page = made.joinpath("invariant.html").read_text("utf-8")
    assert "padding-left" in page
    assert "padding is not hidden, or moves positions" in page


def test_a_healthy_program_ends_with_0_and_prints_what_it_always_prints(tmp_path: Path) -> None:
    plain = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    done = run(tmp_path, "--changes", "batch", "prefix")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(plain)
    assert "PASS: the answer does not depend on 2 changes" in done.stdout
    (made,) = tmp_path.iterdir()
    assert made.joinpath("batch.log").read_text("utf-8").splitlines()[-1] == plain.strip()


def test_a_program_that_fails_ends_it_with_its_own_code(tmp_path: Path) -> None:
    words = ["llm", "invariant", "--exec", f"{sys.executable} -c 'exit(7)'", "-o", str(tmp_path)]
    assert CliRunner().invoke(ait, words).exit_code == 7


def test_a_program_without_a_model_is_incomplete_and_says_why(tmp_path: Path) -> None:
    words = ["llm", "invariant", "--exec", f"{sys.executable} -c pass", "-o", str(tmp_path)]
    said = CliRunner().invoke(ait, words)
    assert said.exit_code == 3
    assert "INCOMPLETE" in said.output


def test_the_schema_is_published() -> None:
    assert read_schema("invariant")["$id"] == "ait-llm.invariant/1"
