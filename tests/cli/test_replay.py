"""``ait llm replay``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graph_dumps import GraphDump

from ait_llm.cli.main import main


def _run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["llm", "replay", *words])
    return int(ended.value.code or 0)


def test_a_complete_replay_says_so_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = GraphDump(tmp_path / "ait_dump").write()
    assert _run("--dump", str(dump), "-o", str(tmp_path / "golden")) == 0
    out = capsys.readouterr().out
    assert "ait llm replay: complete" in out
    assert "4 of 4 operators in 1 step, end-to-end" in out
    assert f"ait llm compare -gp {tmp_path / 'golden' / 'ait_dump'} -mp {dump}" in out


def test_what_is_not_computed_is_named_and_makes_the_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = GraphDump(tmp_path / "ait_dump", linear="SecretOperation").write()
    words = ("--dump", str(dump), "-o")
    assert _run(*words, str(tmp_path / "golden")) == 3
    out = capsys.readouterr().out
    assert (
        "SKIPPED   SecretOperation_0_0 (token 0) and 1 more: there is no golden SecretOperation; "
        "dumped outputs used"
    ) in out
    assert _run(*words, str(tmp_path / "again"), "--allow-skip") == 0


def test_json_holds_the_whole_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = GraphDump(tmp_path / "ait_dump").write()
    golden = tmp_path / "golden"
    assert _run("--dump", str(dump), "-o", str(golden), "--until", "0_0", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["complete"] is True
    assert (result["mode"], result["until"]) == ("hybrid", "0_0")
    assert (result["operators"], result["computed"], result["steps"]) == (4, 4, [0])
    assert result["golden"] == str(golden / "ait_dump")


@pytest.mark.parametrize("steps", ["x", "3-1", "1-", "-2"])
def test_steps_are_numbers_and_ranges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: str
) -> None:
    dump = GraphDump(tmp_path / "ait_dump").write()
    assert _run("--dump", str(dump), f"--steps={steps}") == 2
    assert "--steps" in capsys.readouterr().err


def test_a_range_of_steps_is_replayed(tmp_path: Path) -> None:
    dump = GraphDump(tmp_path / "ait_dump").write()
    assert _run("--dump", str(dump), "-o", str(tmp_path / "golden"), "--steps", "0-3, 7") == 0
