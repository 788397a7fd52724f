"""The command line of ``ait llm bisect``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner, Result

from ait_llm.bisect import BisectResult, RunRecord
from ait_llm.bisect.repeating import Unrepeated
from ait_llm.bisect.result import Status
from ait_llm.cli import bisect as module
from ait_llm.cli.bisect_text import result_lines, run_line
from ait_llm.core.comparison import Origin
from ait_llm.errors import AitError, UsageError

BOTH = ("--exec", "a", "--golden-exec", "b")


def run(*words: str) -> Result:
    return CliRunner().invoke(module.bisect_command, list(words), catch_exceptions=True)


@pytest.mark.parametrize("budget", ["0", "0%", "101%", "many", "-5%", "5%%"])
def test_a_budget_that_is_none_is_refused(budget: str) -> None:
    result = run(*BOTH, f"--budget={budget}")
    assert isinstance(result.exception, UsageError)
    assert "--budget" in str(result.exception)


@pytest.mark.parametrize("text", ["200MB", "5%", "1.5G"])
def test_a_program_that_does_not_exist_is_told(tmp_path: Path, text: str) -> None:
    result = run(
        "--exec",
        "no-such-program-here",
        "--golden-exec",
        "b",
        "--budget",
        text,
        "-o",
        str(tmp_path),
    )
    assert isinstance(result.exception, AitError)
    assert "no-such-program-here" in str(result.exception)


def test_a_shell_operator_is_refused() -> None:
    assert isinstance(run("--exec", "a > b", "--golden-exec", "b").exception, UsageError)


@pytest.mark.parametrize("code", [1, 3, 9])
def test_a_program_that_fails_is_no_verdict_whatever_its_code(tmp_path: Path, code: int) -> None:
    failing = f"{sys.executable} -S -c 'raise SystemExit({code})'"
    result = run("--exec", failing, "--golden-exec", "b", "--clean", "-o", str(tmp_path), "--json")
    assert result.exit_code == 6
    told = json.loads(result.stdout.splitlines()[-1])
    assert (told["status"], told["side"], told["program_code"]) == ("failed", "mine", code)
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["bisect.json"]


def test_no_two_outcomes_share_an_exit_code(tmp_path: Path) -> None:
    codes = [BisectResult(status, tmp_path, ()).exit_code for status in get_args(Status)]
    assert dict(zip(get_args(Status), codes, strict=True)) == {
        "equal": 0,
        "found": 1,
        "undecided": 3,
        "unrepeatable": 5,
        "failed": 6,
        "interrupted": 130,
    }


def test_a_program_without_operators_is_told(tmp_path: Path) -> None:
    idle = f"{sys.executable} -c pass"
    result = run("--exec", idle, "--golden-exec", idle, "-o", str(tmp_path))
    assert isinstance(result.exception, AitError)
    assert result.exception.exit_code == 3
    assert "no operation of the suspicious program was seen" in str(result.exception)


def test_an_interrupted_search_ends_like_an_interrupted_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(request: Any, *_args: Any, **_more: Any) -> BisectResult:
        (request.folder / "mine").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "bisect", interrupted)
    result = run(*BOTH, "--clean", "-o", str(tmp_path))
    assert isinstance(result.exception, (SystemExit, click.Abort))
    (folder,) = tmp_path.iterdir()
    assert list(folder.iterdir()) == []


def test_a_signal_reaches_the_program_and_ends_the_search(tmp_path: Path) -> None:
    waiting = f"{sys.executable} -c 'import time; print(1, flush=True); time.sleep(60)'"
    words = ["llm", "bisect", *("--exec", waiting, "--golden-exec", waiting), "--clean"]
    with subprocess.Popen(
        [sys.executable, "-m", "ait_llm", *words, "-o", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # no terminal that would send it to the whole group
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGINT)
        told = process.stdout.read().decode()
        assert process.wait() == 130
    assert "the suspicious program failed with exit code 130" in told
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["bisect.json"]


RUN = RunRecord(4, "mine", "values of 2 operations", "-ids 2_1,3 -er 0,0", 2048)
ORIGIN = Origin("LinearOperation_2_1", "2_1", "LinearOperation", 0, evidence="it is off")


def lines(**more: Any) -> str:
    result = BisectResult(**{"status": "found", "folder": Path("/out"), "runs": (RUN,), **more})
    return "\n".join(result_lines(result, cleaned=False))


def test_a_run_is_told_with_what_it_may_write() -> None:
    assert run_line(RUN).splitlines() == [
        "run 4  mine: values of 2 operations (about 2.0 KiB)",
        "       -ids 2_1,3 -er 0,0",
    ]


def test_the_verdict_is_told_with_its_cost() -> None:
    done = RunRecord(1, "mine", "all", "", None, written=1024, exit_code=0)
    text = lines(runs=(done,), origin=ORIGIN, full=102400, limit=4096, compared=3)
    assert "operator  LinearOperation_2_1 (id 2_1, token 0)" in text
    assert "wrote     1.0 KiB in 1 run, 1 % of 100.0 KiB that full dumps would take" in text
    assert "ait llm compare -gp /out/golden -mp /out/mine" in text


def test_candidates_are_told_where_it_is_not_certain() -> None:
    others = tuple(f"Op_{number}" for number in range(7))
    origin = Origin("Op", "", "", 0, certain=False, candidates=others)
    text = lines(status="undecided", origin=origin)
    assert "suspect   Op (step 0)" in text
    assert "or at     Op_0, Op_1, Op_2, Op_3, Op_4 and 2 more" in text


def test_what_does_not_repeat_itself_is_told() -> None:
    found = Unrepeated("Op_1", "1", "Op", 0, "outtensor0", False, "max 1.0 and 2.0")
    text = lines(status="unrepeatable", side="golden", unrepeated=found)
    assert "the golden program does not repeat itself" in text
    assert "Op_1 (step 0) does not repeat itself: outtensor0 differs" in text
