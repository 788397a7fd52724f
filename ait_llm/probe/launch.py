"""Runs the user's program as if we were not there: no shell, same terminal, signals passed on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

from ait_llm.errors import UsageError

_SCRIPT_ADVICE = "put the command into a script and use --exec 'bash script.sh'"
_OPERATORS = "|&;<>()"
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (*_TERMINAL_SIGNALS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def split_command(text: str) -> list[str]:
    """Split a command line into words as a shell would, and refuse what needs a shell.

    Quotes and backslashes are honoured: ``python "my script.py"`` has two words.

    Raises:
        UsageError: empty, an open quote, or an operator, expansion or assignment of the shell.
    """
    _refuse_shell_syntax(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--exec {text!r}: {str(error).lower()}") from error
    if not words or not words[0]:
        raise UsageError('--exec is empty; give the command to run, such as --exec "bash run.sh"')
    if re.match(r"[A-Za-z_]\w*=", words[0]):
        raise UsageError(
            f"--exec: {words[0]!r} sets a variable, which only a shell can do; "
            f"use --exec 'env {words[0]} ...'"
        )
    return words


def _refuse_shell_syntax(text: str) -> None:
    quote, escaped = "", False
    for index, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote and char == quote:
            quote = ""
        elif quote == "'":
            continue
        elif char == "`" or (char == "$" and re.match(r"\$[({A-Za-z_]", text[index:])):
            name = re.match(r"\$\w+|\$\{\w+\}|\$[({]|`", text[index:])
            found = name.group() if name else char
            raise UsageError(
                f"--exec runs without a shell, so {found!r} is not expanded; {_SCRIPT_ADVICE}"
            )
        elif quote:
            continue
        elif char in "'\"":
            quote = char
        elif char in _OPERATORS or char == "\n":
            run = re.match(rf"[{re.escape(_OPERATORS)}]+|\n", text[index:])
            operator = run.group() if run else char
            raise UsageError(
                f"--exec runs without a shell, so {operator!r} does not work (redirections, pipes "
                f"and lists of commands); {_SCRIPT_ADVICE}, or quote it if it is meant literally"
            )


def resolve_program(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """The file that ``words[0]`` names.

    Raises:
        UsageError: there is no such program, or it is not executable.
    """
    name = words[0]
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    if found is not None:
        return found
    if os.sep in name and os.path.isfile(name):  # noqa: PTH113 - a word of the user, not a Path
        raise UsageError(
            f"--exec: {name} is not executable; run it with its interpreter, "
            f"such as 'bash {name}' or 'python {name}'"
        )
    raise UsageError(f"--exec: there is no program {name!r}; check its name and your PATH")


def run_command(
    words: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None = None
) -> int:
    """Run ``words`` to its end and return its exit code, or 128 plus the signal that ended it.

    Standard streams and the process group are shared with the program, so that terminals, job
    control and launchers such as torchrun behave as without us. Signals sent to us are sent on.

    Args:
        words: the program and its arguments.
        environment: all of its environment.
        output: takes what the program prints; None leaves it our own streams.

    Raises:
        UsageError: the program cannot be started.
    """
    program = resolve_program(words, environment)
    received: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the whole foreground group; sending it again would interrupt the
        # program's own clean-up.
        if number in _TERMINAL_SIGNALS and _in_foreground():
            return
        if child is None:
            received.append(number)
        else:
            child.send_signal(number)

    with _handlers(pass_on):
        try:
            child = subprocess.Popen(
                list(words),
                executable=program,
                env=dict(environment),
                stdout=output,
                stderr=output,
            )
        except OSError as error:
            raise UsageError(f"--exec: {program} cannot be started ({error.strerror})") from error
        for number in received:
            child.send_signal(number)
        code = child.wait()
    return code if code >= 0 else 128 - code


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextmanager
def _handlers(handler: signal._HANDLER) -> Iterator[None]:
    """Install ``handler`` for the signals to pass on; a signal that is ignored stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; the caller keeps its own
        return
    previous = {}
    try:
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in previous.items():
            with suppress(TypeError):  # None: a handler that was not installed from Python
                signal.signal(number, old)
