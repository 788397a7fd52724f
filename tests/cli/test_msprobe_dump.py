"""``ait llm dump --msprobe-config``: what it takes, says and ends with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ait_llm.cli import msprobe_dump
from ait_llm.cli.main import ait
from ait_llm.dump.torch_ledger import TorchProcess
from ait_llm.dump.torch_summary import TorchSummary


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "dump"), "step": [0, "2-3"]}))
    return path


def invoke(config: Path, *words: str) -> Result:
    command = f"{sys.executable} -c pass"
    words = ("--msprobe-config", str(config), "--exec", command, *words)
    return CliRunner().invoke(ait, ["llm", "dump", *words])


def test_a_program_without_msprobe_ends_with_3(config: Path) -> None:
    result = invoke(config)
    assert result.exit_code == 3
    assert "write   statistics of level L1" in result.stderr
    assert "of      steps 0, 2-3" in result.stderr
    assert "missing  the program never imported msprobe.pytorch" in result.stderr


def test_the_output_stands_in_the_place_of_dump_path(config: Path, tmp_path: Path) -> None:
    result = invoke(config, "-o", str(tmp_path / "other"), "--json")
    assert json.loads(result.stdout.splitlines()[-1])["dump_dir"] == str(tmp_path / "other")
    assert not (tmp_path / "dump").exists()


@pytest.mark.parametrize("words", ["--type torch", "-er 0,1", "--weights"])
def test_what_the_file_decides_is_no_option(config: Path, words: str) -> None:
    result = invoke(config, *words.split())
    assert result.exit_code == 2
    assert "is not for --msprobe-config, whose file says what is captured" in result.stderr


def test_a_file_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    result = invoke(tmp_path / "none.json")
    assert result.exit_code == 2
    assert "the configuration cannot be read" in result.stderr


def test_the_summary_says_what_was_captured(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = TorchProcess(
        Path("/o/ledger/rank0_7.jsonl"), "rank0", 7, "here", {0, 1}, modules=4, operators=9,
        tensors=12, end="step",
    )  # fmt: skip
    summary = TorchSummary(0, Path("/o"), (process,), notes=("the program names x",))
    monkeypatch.setattr(msprobe_dump, "run_msprobe_dump", lambda *_: summary)
    result = invoke(config)
    assert result.exit_code == 0
    assert (
        "process  7 (rank0): steps 0-1, 4 module calls, 9 API calls, 12 tensors; sealed at step"
        in result.stderr
    )
    assert "note     the program names x" in result.stderr
    assert "next     ait llm show /o" in result.stderr
