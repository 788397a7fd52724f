"""What a shell completes: by real bash, and the scripts of the others where they are installed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from ait_llm.cli.completed import operator_names
from ait_llm.cli.completion import SHELLS
from ait_llm.cli.main import ait
from ait_llm.opcheck.golden import golden_ops

ASK = """
eval "$SCRIPT"
for line in "$@"; do
  eval "COMP_WORDS=($line)"
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  "$FUNCTION" ait
  echo "${COMPREPLY[*]}"
done
"""


def script_of(shell: str) -> str:
    said = CliRunner().invoke(ait, ["completion", shell])
    assert said.exit_code == 0
    return said.stdout


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A PATH on which ``ait`` is this checkout."""
    script = tmp_path / "bin" / "ait"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ait_llm "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}:{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_values(program: str, tmp_path: Path) -> None:
    script = script_of("bash")
    function = next(line.removesuffix("() {") for line in script.split("\n") if "() {" in line)
    asked = {
        "ait ''": "completion llm",
        "ait llm c": "check compare convert",
        "ait llm dump --only": "--only-save-desc",
        "ait llm dump -sd --type layer te": "tensor",
        "ait llm dump -opname linear,self": "linear,SelfAttention",
    }
    said = subprocess.run(
        ["bash", "-c", ASK, "bash", *asked],
        env={**os.environ, "PATH": program, "SCRIPT": script, "FUNCTION": function.strip()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(zip(asked, said.stdout.splitlines(), strict=True)) == asked
    assert said.stderr == ""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_what_is_typed_before_the_tab_key(program: str, tmp_path: Path) -> None:
    script = tmp_path / "ait.zsh"
    script.write_text(script_of("zsh"))
    environment = {**os.environ, "PATH": program, "TERM": "dumb", "PS1": "", "HOME": str(tmp_path)}
    terminal, inside = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    )
    os.close(inside)
    try:
        # the key Ctrl-G prints what stands on the line, whatever the terminal shows of it
        shows = "show() { zle -I; print -r -- \"line=<$BUFFER>\" }; zle -N show; bindkey '^G' show"
        ready = f"autoload -Uz compinit; compinit -u -D; . {script}; {shows}; echo re''ady\n"
        os.write(terminal, ready.encode())
        answer_of(terminal, "ready")
        os.write(terminal, b"ait llm comp\t\a")
        assert "line=<ait llm compare >" in answer_of(terminal, "line=<[^>]*>")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def answer_of(terminal: int, pattern: str) -> str:
    """What a terminal shows until something stands there."""
    said = ""
    while not re.search(pattern, said):
        readable, _, _ = select.select([terminal], [], [], 60)
        assert readable, f"nothing more came after {said!r}"
        said += os.read(terminal, 4096).decode("utf-8", "replace")
    return said


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_with_the_file_in_its_folder(program: str, tmp_path: Path) -> None:
    file = tmp_path / ".config" / "fish" / "completions" / "ait.fish"
    file.parent.mkdir(parents=True)
    file.write_text(script_of("fish"))
    asked = {"ait llm comp": ["compare"], "ait llm compare --format csv j": ["jsonl", "junit"]}
    said = subprocess.run(
        ["fish", "-c", "for line in $argv; complete -C $line; echo; end", *asked],
        env={"PATH": program, "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [
        [line.split("\t")[0] for line in each.splitlines()] for each in said.stdout.split("\n\n")
    ]
    assert found[: len(asked)] == list(asked.values())


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_what_their_shell_can_read(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    said = subprocess.run(
        [shell, "-n"], input=script_of(shell), capture_output=True, text=True, check=True
    )
    assert said.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_ask_the_program_in_the_way_of_their_shell(shell: str) -> None:
    assert f"_AIT_COMPLETE={shell}_complete" in script_of(shell)


def completed(*words: str) -> list[str]:
    *before, last = words
    shell = BashComplete(ait, {}, "ait", "_AIT_COMPLETE")
    return [item.value for item in shell.get_completions(before, last)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("llm", "dump", "--type", "inp"), []),
        (("llm", "dump", "--type", "torch"), ["torch", "torch-stats", "torch-op"]),
        (("llm", "dump", "--type", "layer", "model", "ker"), ["kernel"]),
        (("llm", "dump", "--type", "layer", "--on"), ["--only-save-desc"]),
        (("llm", "dump", "--type", "layer", "-sd", ""), []),
        (("llm", "dump", "-opn"), ["-opname"]),
        (("llm", "opcheck", "-opname", "layernorm"), ["LayerNorm", "LayerNormWithStride"]),
        (("llm", "opcheck", "--standard", "c"), ["classic", "contract"]),
        (("llm", "opcheck", "-metric", "abs", "c"), ["cos_sim"]),
        (("llm", "compare", "--format", "csv", "j"), ["jsonl", "junit"]),
        (("llm", "compare", "--metrics", "cos"), ["cosine_similarity"]),
        (("llm", "replay", "--mode", "h"), ["hybrid"]),
        (("llm", "bisect", "--type", "a"), ["auto", "atb"]),
        (("llm", "nope", "--type", ""), None),
        (("completion", "z"), ["zsh"]),
    ],
)
def test_values_are_completed_from_what_is_known(
    words: tuple[str, ...], expected: list[str] | None
) -> None:
    found = completed(*words)
    assert found == expected if expected is not None else "dump" in found


def test_a_path_is_left_to_the_shell() -> None:
    shell = BashComplete(ait, {}, "ait", "_AIT_COMPLETE")
    for words, kind in (
        (["llm", "show"], "file"),
        (["llm", "dump", "-o"], "dir"),
        (["llm", "compare", "--resume"], "file"),
        (["llm", "compare", "-i"], "file"),
    ):
        (item,) = shell.get_completions(words, "re")
        assert (item.value, item.type) == ("re", kind)


def test_operator_types_are_those_of_the_golden_operators() -> None:
    names = {f"{name}Operation" for name in operator_names()}
    # A second name of RmsNormOperation, which no dump reports.
    assert set(golden_ops) - names == {"RmsNormWithStrideOperation"}
    assert names <= set(golden_ops)


def test_completing_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    completed("llm", "compare", "-o", "s3://bucket/report", "-gp", "a", "--")
    assert list(tmp_path.iterdir()) == []
