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

OWN = """
import os
import torch
from torch import nn
from ait_llm.dump.changes import made


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        return self.second(x / x.abs().amax())  # over the whole batch


torch.manual_seed(0)
net, x = Net(), torch.arange(8.0)[None]
if os.environ["AIT_INVARIANT_CHANGE"] == "batch":
    x = torch.cat([x, 9 * x])
    made("batch")
with torch.no_grad():
    net(x)
"""
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


def test_a_program_that_fails_is_no_verdict_and_ends_it_with_6(tmp_path: Path) -> None:
    words = ["llm", "invariant", "--exec", f"{sys.executable} -c 'exit(7)'", "-o", str(tmp_path)]
    assert CliRunner().invoke(ait, words).exit_code == 6


def test_a_program_without_a_model_is_incomplete_and_says_why(tmp_path: Path) -> None:
    words = ["llm", "invariant", "--exec", f"{sys.executable} -c pass", "-o", str(tmp_path)]
    said = CliRunner().invoke(ait, words)
    assert said.exit_code == 3
    assert "INCOMPLETE" in said.output


def test_a_program_of_its_own_makes_its_changes_and_says_so(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(OWN, "utf-8")
    words = ["llm", "invariant", "--exec", f"{sys.executable} {program}", "-o", str(tmp_path)]
    said = CliRunner().invoke(ait, [*words, "--changes", "again", "batch", "memory", "chunks"])
    assert said.exit_code == 1, said.output
    assert "again   held" in said.output
    assert "batch   broken: rows of a batch touch each other" in said.output
    assert "memory  held" in said.output
    assert "chunks  not made: the program calls no model of transformers" in said.output


def test_a_signal_that_ends_a_changed_run_ends_the_command_with_what_is_known(
    tmp_path: Path,
) -> None:
    program = tmp_path / "own.py"
    program.write_text(OWN.replace('made("batch")', "os.kill(os.getpid(), 2)"), "utf-8")
    words = ["llm", "invariant", "--exec", f"{sys.executable} {program}", "-o", str(tmp_path)]
    said = CliRunner().invoke(ait, [*words, "--changes", "again", "batch", "memory"])
    assert said.exit_code == 130, said.output
    assert "again    held" in said.output
    assert "interrupted before every change was made" in said.output
    assert "memory" not in said.output


def test_shards_of_two_ranks_add_up(tmp_path: Path) -> None:
    done = run(tmp_path, "--changes", "ranks", "--type", "torch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ranks  held" in done.stdout


@pytest.mark.parametrize("command", [("invariant",), ("bisect", "--golden-exec", "true")])
def test_an_output_that_cannot_be_made_is_wrong_usage(command: tuple[str, ...]) -> None:
    said = CliRunner().invoke(ait, ["llm", *command, "--exec", "true", "-o", "/proc/nowhere"])
    assert said.exit_code == 2
    assert said.stderr.startswith("ait: error: /proc/nowhere")


def test_what_a_changed_run_prints_is_for_its_user_and_group(faulty: tuple[Path, Any]) -> None:
    (made,) = faulty[0].iterdir()
    assert not made.joinpath("again.log").stat().st_mode & 0o007
    assert not made.stat().st_mode & 0o007


def test_the_schema_is_published() -> None:
    assert read_schema("invariant")["$id"] == "ait-llm.invariant/1"
