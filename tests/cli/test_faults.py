"""What no one foresaw ends every command with 4, an interrupt with 130, a closed pipe quietly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner, Result
from msprobe_samples import sample
from operator_dumps import LINEAR, OperatorDump

from ait_llm.cli.llm import own_commands
from ait_llm.cli.main import ait
from ait_llm.compare.api import reader
from ait_llm.dump.golden import run as golden_run
from ait_llm.errors import MissingDependencyError
from ait_llm.faults import FaultElsewhereError

CLI = "ait_llm.cli"
# Words that a command takes as they are, and what it calls first to do its work.
INJECTED = {
    "dump": (["--exec", "true", "-o", "out"], f"{CLI}.dump.run_atb_dump"),
    "plan": (["--exec", "true", "-o", "out"], f"{CLI}.plan.survey_atb"),
    "compare": (["-gp", "t.npy", "-mp", "t.npy", "-o", "out"], "ait_llm.compare.pipeline._match"),
    "bisect": (["--exec", "a", "--golden-exec", "b", "-o", "out"], f"{CLI}.bisect.bisect"),
    "invariant": (["--exec", "true", "-o", "out"], f"{CLI}.invariant.run_changes"),
    "transplant": (
        ["--exec", "true", "--golden-exec", "true", "-o", "out"],
        f"{CLI}.transplant.transplant_programs",
    ),
    "tokens": (
        ["--exec", "true", "--golden-exec", "true", "-o", "out"],
        f"{CLI}.tokens.tokens_of_programs",
    ),
    "api-precision-compare": (["-npu", "a", "-gpu", "b"], f"{CLI}.api_check.compare_precision"),
    "merge-result": (
        ["-i", "a", "-o", "out", "-config", "b"],
        f"{CLI}.merge_result.read_merge_settings",
    ),
    "opcheck": (["-i", "t.npy", "-o", "out"], f"{CLI}.opcheck.check_dump"),
    "errcheck": (["--dump", "t.npy", "-o", "out"], f"{CLI}.errcheck.check_dump"),
    "api-check": (["-api_info", "a", "-o", "out", "-d", "cpu"], f"{CLI}.api_check.check_apis"),
    "replay": (["--dump", "t.npy", "-o", "out"], f"{CLI}.replay.replay_dump"),
    "show": (["."], f"{CLI}.show.open_dump"),
    "convert": (["t.npy", "--to", "pt", "-o", "out"], f"{CLI}.convert.convert_files"),
    "export": ([".", "--to", "npz", "-o", "out.npz"], f"{CLI}.export.open_dump"),
    "repro": (["--dump", "a", "--op", "1", "-o", "out.zip"], f"{CLI}.repro.make_capsule"),
    "attach": (["1", "status"], f"{CLI}.attach.find_run"),
    "check": (
        ["--model", "m", "--exec", "true"],
        "ait_llm.dump.golden.checkpoint.open_checkpoint",
    ),
    "golden": (
        ["--model", "m", "--like", "t", "-o", "g"],
        f"{golden_run.__name__}.plan_golden",  # loaded before what it takes from others is replaced
    ),
    "doctor": (["-o", "out"], f"{CLI}.doctor.check_machine"),
    "mcp": (["--allow", "."], "ait_llm.mcp.server.serve"),
    "explain": (["AIT-F001"], f"{CLI}.explain.explained"),
    "schema": (["doctor"], f"{CLI}.schema.read_schema"),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    np.save("t.npy", np.ones(3, np.float32))


def run(*words: object) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def failing(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    return fail


def fault_file() -> str:
    """What the only file of a fault here says."""
    (path,) = Path.cwd().glob("ait_fault_*.txt")
    assert path.stat().st_mode & 0o777 == 0o640
    return path.read_text(encoding="utf-8")


def test_every_command_is_tried() -> None:
    assert sorted(INJECTED) == sorted(own_commands())


@pytest.mark.parametrize("name", INJECTED)
def test_what_nobody_foresaw_is_4_and_one_sentence_with_a_file_to_report(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, place = INJECTED[name]
    monkeypatch.setattr(place, failing(AttributeError("'None' has no 'injected'")))
    said = run(name, *words)
    assert said.exit_code == 4, said.output
    told = [line for line in said.stderr.splitlines() if "error" in line]
    assert len(told) == 1
    assert told[0].startswith("ait: error: a fault of ait itself (AttributeError: 'None' has no ")
    assert "Traceback" not in said.stderr
    written = fault_file()
    assert "Traceback (most recent call last)" in written
    assert "AttributeError: 'None' has no 'injected'" in written


@pytest.mark.parametrize("name", INJECTED)
def test_an_interrupt_is_130_in_every_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, place = INJECTED[name]
    monkeypatch.setattr(place, failing(KeyboardInterrupt()))
    said = run(name, *words)
    assert said.exit_code == 130
    assert said.stderr.endswith("interrupted\n")
    assert not list(Path.cwd().glob("ait_fault_*"))


@pytest.mark.parametrize("error", [EOFError("the end"), OSError(5, "nothing"), KeyError(1)])
def test_errors_that_a_library_takes_for_its_own_are_4_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(error))
    assert run("show", ".").exit_code == 4
    assert type(error).__name__ in fault_file()


def test_a_closed_pipe_ends_a_command_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(BrokenPipeError(32, "Broken pipe")))
    said = run("show", ".")
    assert (said.exit_code, said.output) == (141, "")


def test_a_reader_that_leaves_hears_no_complaint() -> None:
    words = [sys.executable, "-m", "ait_llm", "llm", "compare", "-gp", "t.npy", "-mp", "t.npy"]
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has its lines
    try:
        ran = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert ran.returncode == 141
    assert b"Broken pipe" not in ran.stderr
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_too_little_memory_is_no_fault(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(error))
    said = run("show", ".")
    assert (said.exit_code, said.stderr) == (3, "ait: error: there is not enough free memory\n")


def test_the_environment_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(KeyError("x")))
    monkeypatch.setenv("AIT_DEBUG", "1")
    assert "Traceback (most recent call last)" in run("show", ".").stderr


def test_an_expected_error_shows_its_traceback_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(MissingDependencyError("a package")))
    assert "Traceback" not in run("show", ".").stderr
    monkeypatch.setenv("AIT_DEBUG", "1")
    assert "Traceback" in run("show", ".").stderr


def test_where_no_file_can_be_written_the_traceback_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(KeyError("x")))
    monkeypatch.setattr(f"{CLI}.fault.os.open", failing(PermissionError(13, "denied")))
    said = run("show", ".")
    assert said.exit_code == 4
    assert "Traceback (most recent call last)" in said.stderr


def test_the_file_does_not_tell_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CLI}.show.open_dump", failing(KeyError("x")))
    monkeypatch.setattr(sys, "argv", ["ait", "llm", "show", "ftp://me:secret@host/out"])
    run("show", ".")
    assert "ftp://me:***@host/out" in fault_file()


def only(bad: int, right: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """A function that raises at one call, and is right at all others."""
    calls = iter(range(1_000_000))

    def function(*args: Any, **more: Any) -> Any:
        if next(calls) == bad:
            raise error
        return right(*args, **more)

    return function


def pairs(folder: Path, ends: Sequence[float]) -> Path:
    folder.mkdir()
    for number, end in enumerate(ends):
        np.save(folder / f"{number}.npy", np.array([1.0, end], np.float32))
    return folder


@pytest.mark.parametrize("mine", [[1, 2, 3], [1, 2, 9]])
def test_a_fault_costs_one_pair_of_a_comparison_and_is_told_in_the_report(
    mine: Sequence[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ait_llm.compare import pair

    right = pair.measure_aligned
    monkeypatch.setattr(pair, "measure_aligned", only(0, right, AssertionError("injected")))
    sides = ("-gp", pairs(tmp_path / "golden", [1, 2, 3]), "-mp", pairs(tmp_path / "mine", mine))
    said = run("compare", *sides, "-o", "out", "--format", "jsonl", "-j", 1, "--allow-skip")
    assert said.exit_code == 4, said.output
    assert "a fault of ait itself (AssertionError: injected)" in said.stderr
    (report,) = Path("out").glob("*.jsonl")
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    verdicts = [line["verdict"] for line in lines if line["type"] == "comparison"]
    assert sorted(verdicts) == sorted(["ERROR", "PASS", "PASS" if mine[2] == 3 else "FAIL"])
    assert lines[-1]["exit_code"] == 4
    assert "injected" in fault_file()


def test_an_unreadable_file_is_no_fault(tmp_path: Path) -> None:
    golden, mine = pairs(tmp_path / "golden", [1, 2]), pairs(tmp_path / "mine", [1, 2])
    (mine / "0.npy").write_bytes(b"no tensor")
    assert run("compare", "-gp", golden, "-mp", mine, "-o", "out").exit_code == 3


def test_a_fault_of_the_search_for_the_origin_loses_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ait_llm.compare.origin.find_origins", failing(IndexError("injected")))
    golden, mine = pairs(tmp_path / "golden", [1, 2]), pairs(tmp_path / "mine", [1, 9])
    said = run("compare", "-gp", golden, "-mp", mine, "-o", "out", "--format", "csv")
    assert said.exit_code == 4
    assert said.stdout.startswith("ait llm compare: FAIL")
    assert list(Path("out").glob("*.csv"))
    assert "injected" in fault_file()


def test_a_comparison_that_ends_with_a_fault_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = ("-gp", pairs(tmp_path / "golden", [1, 2]), "-mp", pairs(tmp_path / "mine", [1, 2]))
    with monkeypatch.context() as patched:
        broken = "ait_llm.compare.pipeline.apply_findings"
        patched.setattr(broken, failing(KeyError("injected")))
        said = run("compare", *sides, "-o", "out")
    assert said.exit_code == 4
    (journal,) = Path("out").glob("*.jsonl")
    kept = f"what was done is kept in {journal.absolute()}; --resume {journal.absolute()} goes on"
    assert kept in said.stderr
    again = run("compare", *sides, "-o", "out", "--resume", journal)
    assert again.exit_code == 0, again.output


def test_a_fault_costs_one_operator_of_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ait_llm.opcheck import checker

    x = torch.linspace(1, 2, 64).reshape(4, 16).half()
    dump = OperatorDump(tmp_path / "ait_dump")
    for number in range(3):
        dump.add(f"{number}_LinearOperation", [x, x], [(x.double() @ x.double().T).half()], LINEAR)
    right = checker.results_of
    monkeypatch.setattr(checker, "results_of", only(1, right, AttributeError("injected")))
    said = run("opcheck", "-i", dump.root, "-o", "out", "-j", 1, "--format", "csv", "--allow-skip")
    assert said.exit_code == 4, said.output
    assert "2 PASS, 1 ERROR" in said.stdout
    assert "injected" in fault_file()


def test_a_fault_costs_one_call_of_a_check_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from ait_llm.apicheck import checker

    right = checker._summary
    monkeypatch.setattr(checker, "_summary", only(2, right, AttributeError("injected")))
    (dump,) = (sample("L1_tensor") / "golden").rglob("dump.json")
    said = run("api-check", "-api_info", dump, "-o", "out", "-d", "cpu")
    assert said.exit_code == 4, said.output
    assert "INCOMPLETE" in said.stdout
    assert "injected" in fault_file()


def test_a_fault_in_a_thread_of_api_level_tables_is_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ait_llm.compare.api.measuring.compare_files", failing(AttributeError("injected"))
    )
    name = "Functional.linear.0.forward.output.0.pt"
    record = {"Functional.linear.0.forward": call([], [tensor([1, 2], name=name)])}
    sides = [
        write_dump(tmp_path / side, record, task="tensor", tensors={name: [1.0, 2.0]})
        for side in ("golden", "mine")
    ]
    said = run("compare", "-gp", sides[0], "-mp", sides[1], "-o", "out")
    assert said.exit_code == 4
    assert "injected" in fault_file()


def test_a_fault_in_a_process_that_reads_is_no_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = reader._PROGRAM.replace(
        "import main;", "import main; import ait_llm.compare.api.reader as r; r.items_of = None;"
    )
    monkeypatch.setattr(reader, "_PROGRAM", broken)
    path = write_dump(tmp_path, {"Functional.linear.0.forward": call([tensor()], [tensor()])})
    with (
        pytest.raises(FaultElsewhereError, match="'NoneType' object is not callable"),
        reader.read_apart(path) as rows,
    ):
        list(rows)
