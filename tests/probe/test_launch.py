"""Commands are split like a shell would and run as if we were not there."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm.errors import UsageError
from ait_llm.probe.launch import run_command, split_command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bash run.sh", ["bash", "run.sh"]),
        ("  python   x.py ", ["python", "x.py"]),
        ("python \"my script.py\" --t 'a b'", ["python", "my script.py", "--t", "a b"]),
        (r"python my\ script.py", ["python", "my script.py"]),
        ("x --prompt 'a > b | c; $(d) `e`'", ["x", "--prompt", "a > b | c; $(d) `e`"]),
        ('x "a > b"', ["x", "a > b"]),
        (r"x a\>b", ["x", "a>b"]),
        ("x cost=5$ 'a$'", ["x", "cost=5$", "a$"]),
        ("torchrun --nproc-per-node 2 t.py", ["torchrun", "--nproc-per-node", "2", "t.py"]),
        ("x ''", ["x", ""]),
        ("x [1,2]{3} #no", ["x", "[1,2]{3}", "#no"]),
    ],
)
def test_words_are_split_and_quotes_honoured(text: str, words: list[str]) -> None:
    assert split_command(text) == words


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("python x.py > log", "'>'"),
        ("python x.py 2>&1", "'>&'"),
        ("python x.py | tee log", r"'\|'"),
        ("cd a && python x.py", "'&&'"),
        ("python x.py &", "'&'"),
        ("a; b", "';'"),
        ("a;b", "';'"),
        ("a\nb", r"'\\n'"),
        ("(a)", r"'\('"),
        ("a <in", "'<'"),
        ("a $(b)", r"'\$\('"),
        ('a "$(b)"', r"'\$\('"),
        ("a $HOME", r"'\$HOME'"),
        ("a ${HOME}", r"'\$\{HOME\}'"),
        ("a `b`", "'`'"),
        ('a "`b`"', "'`'"),
    ],
)
def test_what_needs_a_shell_is_refused_with_the_advice(text: str, operator: str) -> None:
    with pytest.raises(UsageError, match=f"{operator}.*put the command into a script"):
        split_command(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--exec is empty"),
        ("   ", "--exec is empty"),
        ("''", "--exec is empty"),
        ('python "x.py', "no closing quotation"),
        ("python x\\", "no escaped character"),
        ("A=1 python x.py", "use --exec 'env A=1 ...'"),
    ],
)
def test_commands_that_cannot_be_run_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split_command(text)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.abort()", 134),
    ],
)
def test_the_programs_own_ending_is_returned(code: str, expected: int) -> None:
    assert run_command(python(code), os.environ) == expected


def test_a_missing_program_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="there is no program 'no-such-program'"):
        run_command(["no-such-program"], os.environ)


def test_a_script_that_is_not_executable_is_told_how_to_run(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("true")
    with pytest.raises(UsageError, match="is not executable; run it with its interpreter"):
        run_command([str(script)], os.environ)


def test_a_file_of_an_unknown_format_is_one_sentence(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00\x01\x02")
    program.chmod(0o755)
    with pytest.raises(UsageError, match="cannot be started"):
        run_command([str(program)], os.environ)


def test_the_path_of_the_programs_environment_is_searched(tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o755)
    assert run_command(["greet"], {"PATH": str(tmp_path)}) == 5


LAUNCHER = """
import os, sys
from ait_llm.probe.launch import run_command
code = run_command([sys.executable, "-c", sys.argv[1]], os.environ)
print("code", code, flush=True)
"""
PATIENT = """
import signal, sys, time
signal.signal(signal.{name}, lambda *_: (print("got", flush=True), sys.exit(3)))
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_to_the_launcher_reaches_the_program(name: str) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, PATIENT.format(name=name)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # no terminal, as under a scheduler
    )
    with launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.send_signal(getattr(signal, name))
        assert launcher.stdout.read() == "got\ncode 3\n"


COUNTING = """
import signal, time
count = 0
def note(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, note)
print("ready", flush=True)
while not count:
    time.sleep(0.02)
time.sleep(0.3)
print("interrupts", count, flush=True)
"""


def test_ctrl_c_at_a_terminal_reaches_the_program_once() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", LAUNCHER, COUNTING])
    output = b""
    interrupted = False
    while b"\n" not in output.partition(b"code")[2]:
        output += os.read(terminal, 1024)
        if b"ready" in output and not interrupted:
            os.write(terminal, b"\x03")
            interrupted = True
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"interrupts 1" in output
    assert b"code 0" in output


def test_an_ignored_signal_stays_ignored_for_the_program() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        check = "import signal; raise SystemExit(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
        assert run_command(python(check), os.environ) == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_handlers_are_as_before_after_the_run() -> None:
    before = signal.getsignal(signal.SIGINT)
    run_command(python("pass"), os.environ)
    assert signal.getsignal(signal.SIGINT) is before
