"""Exit codes of all commands: 2 for what cannot be read, and 0, 1 and 3 where it takes little."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.console import quiet_option
from ait_llm.cli.llm import own_commands
from ait_llm.cli.main import ait
from ait_llm.cli.results import report
from ait_llm.dump.summary import DumpSummary

UNREADABLE = {
    "dump": ["--exec", "no_such_program_anywhere", "-o", "out"],
    "plan": ["--model", "absent.json", "-o", "out"],
    "attach": ["999999999", "status"],
    "golden": ["--model", "absent", "--like", "absent", "-o", "out"],
    "check": ["--model", "absent", "--exec", "true", "-o", "out"],
    "compare": ["-gp", "absent", "-mp", "absent", "-o", "out"],
    "bisect": ["--exec", "a > b", "--golden-exec", "b", "-o", "out"],
    "invariant": ["--exec", "no_such_program_anywhere", "-o", "out"],
    "transplant": ["-mp", "absent", "-o", "out"],
    "tokens": ["-gp", "absent", "-mp", "absent", "-o", "out"],
    "api-precision-compare": ["-npu", "absent.csv", "-gpu", "absent.csv", "-o", "out"],
    "merge-result": ["-i", "absent", "-o", "out", "-config", "absent.yaml"],
    "opcheck": ["-i", "absent", "-o", "out"],
    "errcheck": ["--dump", "absent", "-o", "out"],
    "api-check": ["-api_info", "absent.json", "-o", "out", "-d", "cpu"],
    "replay": ["--dump", "absent", "-o", "out"],
    "show": ["absent"],
    "convert": ["absent", "--to", "npy", "-o", "out"],
    "export": ["absent", "--to", "npz", "-o", "out.npz"],
    "repro": ["--dump", "absent", "--op", "1", "-o", "out.zip"],
    "doctor": ["--absent"],
    "mcp": ["--allow", "absent"],
    "explain": ["absent"],
    "schema": ["absent"],
}
"""Words of a command that has nothing to read."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: object) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


@pytest.mark.parametrize("name", own_commands())
def test_what_cannot_be_read_is_2_and_one_sentence(name: str, tmp_path: Path) -> None:
    said = run(name, *UNREADABLE[name])
    assert said.exit_code == 2
    assert said.stderr.startswith("ait: error: ")
    assert said.stderr.count("\n") == 1
    assert "Traceback" not in said.stderr
    assert said.stdout == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    folder = tmp_path / "tensors"
    folder.mkdir()
    for name, end in (("golden", 3.0), ("same", 3.0), ("other", 9.0)):
        np.save(folder / f"{name}.npy", np.array([1.0, 2.0, end], np.float32))
    np.save(folder / "longer.npy", np.ones(7, np.float32))
    return folder


@pytest.mark.parametrize(
    ("mine", "words", "code"),
    [
        ("same", [], 0),
        ("other", [], 1),
        ("longer", [], 3),
        ("longer", ["--allow-skip"], 3),  # a comparison of nothing is never all well
        ("other", ["--allow-skip"], 1),
    ],
)
def test_compare_ends_as_its_verdict_says(
    tensors: Path, mine: str, words: list[str], code: int
) -> None:
    paths = ("-gp", tensors / "golden.npy", "-mp", tensors / f"{mine}.npy", "-o", "out")
    said = run("compare", *paths, *words)
    assert said.exit_code == code
    word = {"same": "PASS", "other": "FAIL", "longer": "INCOMPLETE"}[mine]
    assert said.stdout.startswith(f"ait llm compare: {word}")


@pytest.mark.parametrize(("words", "code"), [([], 3), (["--allow-skip"], 0)])
def test_convert_ends_with_3_where_a_file_is_left(
    tensors: Path, words: list[str], code: int
) -> None:
    (tensors / "odd.npy").write_bytes(b"no tensor")
    said = run("convert", tensors, "--to", "pt", "-o", "out", *words)
    assert said.exit_code == code
    assert said.stdout.startswith("ait llm convert: INCOMPLETE: 4 tensors in 4 files")


def test_quiet_leaves_the_result_of_a_comparison_alone(tensors: Path) -> None:
    words = ("compare", "-gp", tensors / "golden.npy", "-mp", tensors / "other.npy", "-o", "out")
    said = run(*words, "--quiet")
    assert said.stderr == ""
    assert said.stdout.startswith("ait llm compare: FAIL")
    machine = run(*words, "--quiet", "--json")
    assert machine.stderr == ""
    assert machine.stdout.count("\n") == 1


def test_a_terminal_is_told_what_the_exit_code_means_and_is_left_clean(tensors: Path) -> None:
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "ait_llm", "llm", "convert", tensors, "--to", "npy", "-o", "out"]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # EIO is how Linux ends a terminal
            while piece := os.read(ours, 4096):
                said += piece
    os.close(ours)
    lines = said.decode().replace("\r\n", "\n").splitlines()
    assert running.returncode == 0
    result = " ".join(" ".join(lines).partition("ait llm convert: ")[2].split())  # lines are broken
    assert result.startswith("complete: 4 tensors in 4 files")
    assert lines[-1] == "  exit code 0: everything was done, and what was compared passed"


@pytest.mark.parametrize(("complete", "said"), [(True, ""), (False, "lost 2 tensors\n")])
def test_quiet_captures_tell_of_losses_only(
    complete: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @quiet_option
    def command() -> None:
        report("lost 2 tensors", DumpSummary(0, Path("out"), problems=() if complete else ("2",)))

    command.main(["-q"], standalone_mode=False)
    assert capsys.readouterr() == ("", said)
