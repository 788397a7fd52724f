"""A command that works with Ray runs in a process of its own, beside one that knows how it ended.

Ray ends the process that it works for, with exit code 1 and without a word, when one of its own
processes is killed. That is no verdict. So the command says in a file how it ends; where it has
not, its exit code is told as what it is, and what Ray has left is removed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

import click

from ait_llm.errors import IncompleteError
from ait_llm.language import translate
from ait_llm.naming import told

VARIABLE = "AIT_SUPERVISED"
"""Environment variable: the file in which the command says how it ends."""
_MARK = "AIT_SUPERVISED_BY"
_PR_SET_PDEATHSIG = 1
_PATIENCE_SECONDS = 5.0  # for processes of Ray to end by themselves
_SILENCE_SECONDS = 120.0  # of Ray; on a busy machine it takes half a minute to begin
_SIGNALLED = 128
_LOOKS = 60  # at whether Ray answers, in the time that it has for it


RUNS_COMMAND: ContextVar[bool] = ContextVar("ait_runs_command", default=False)
"""Whether this process is the command, and does not call it as a library."""


def is_supervised() -> bool:
    """True in the process that does the work."""
    return VARIABLE in os.environ


def supervise() -> int:
    """Run this command once more, in a process of its own; what it ends with.

    Raises:
        IncompleteError: it was ended by something else than itself.
    """
    from ait_llm.engine.ray_cluster import remove_abandoned  # every command loads this module
    from ait_llm.probe.launch import run_command

    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="ait-") as folder:
        said = Path(folder, "ended")
        words = [sys.executable, "-m", "ait_llm", *sys.argv[1:]]
        try:
            code = run_command(words, {**os.environ, VARIABLE: str(said), _MARK: mark})
        finally:
            _end_others(mark)
            remove_abandoned()
        if said.exists() or code > _SIGNALLED:
            return code
    raise IncompleteError(
        f"Ray ended the command (exit code {code}), as it does when one of its processes is "
        "killed or has no memory; run it again, with fewer --jobs or without --engine ray"
    )


def follow_supervisor() -> None:
    """End when the process that started this one does; only for one that is supervised."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def watch_ray(longest: float = _SILENCE_SECONDS, end: Callable[[int], object] = os._exit) -> None:
    """End where Ray does not answer for so many seconds; only for one that is supervised.

    Whoever waits in Ray hears nothing else. What was written is kept.
    """

    from ait_llm.engine.ray_silence import silent_seconds

    text = (
        f"ait: error: Ray has not answered for {longest:.0f} s, as where its processes hang or the "
        "clock of the machine was set; run it again, with --resume or without --engine ray"
    )
    said = told(translate(text))  # in the language of this thread

    def watch() -> None:
        while silent_seconds() < longest:
            time.sleep(longest / _LOOKS)
        click.echo(said, err=True)
        tell_end(IncompleteError.exit_code)
        end(IncompleteError.exit_code)

    threading.Thread(target=watch, name="ait-ray-watch", daemon=True).start()


def tell_end(code: int) -> None:
    """Say how the command ends."""
    with suppress(OSError):
        Path(os.environ[VARIABLE]).write_text(str(code), encoding="utf-8")


def _end_others(mark: str) -> None:
    """Kill what Ray has started and not ended."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while others := list(_marked(mark)):
        if time.monotonic() > end:
            for each in others:
                with suppress(OSError):
                    os.kill(each, signal.SIGKILL)
            return
        time.sleep(0.05)


def _marked(mark: str) -> Iterator[int]:
    """Processes with the mark in their environment; what has ended is not among them."""
    wanted = f"{_MARK}={mark}".encode()
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            with suppress(OSError):
                if wanted in (each / "environ").read_bytes().split(b"\0"):
                    yield int(each.name)
