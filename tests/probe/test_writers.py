"""A run is over when its writers have written what a dead host left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ait_llm.probe.writers import is_alive, wait_for_writers

START = "20261121110000"


def dead_process() -> int:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    return child.pid


def writer(output: Path, host: int, start: str = START) -> subprocess.Popen[bytes]:
    """A shell with the name and arguments of a writer, which ends when its input does."""
    return subprocess.Popen(
        ["/x/ait_probe_writer", "-c", "echo; read -r _", "5", str(host)],
        executable="/bin/sh",
        env={"ATB_OUTPUT_DIR": f"{output}/", "AIT_PROBE_START_TIME": start},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def returns_while_writer_runs(
    output: Path, process: subprocess.Popen[bytes], patience: float = 30
) -> bool:
    """True if the wait ends within ``patience`` seconds although the writer has not."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # it runs
    waiting = threading.Thread(target=wait_for_writers, args=(output, START))
    waiting.start()
    waiting.join(patience)
    early = not waiting.is_alive()
    process.stdin.close()
    process.wait()
    process.stdout.close()
    waiting.join(30)
    assert not waiting.is_alive()
    return early


def test_the_writer_of_a_dead_host_is_waited_for(tmp_path: Path) -> None:
    assert not returns_while_writer_runs(tmp_path, writer(tmp_path, dead_process()), 0.2)


def test_the_writer_of_a_host_that_runs_is_not_waited_for(tmp_path: Path) -> None:
    assert returns_while_writer_runs(tmp_path, writer(tmp_path, os.getpid()))


@pytest.mark.parametrize(("place", "start"), [("other", START), ("", "20000101000000")])
def test_writers_of_other_runs_are_not_waited_for(tmp_path: Path, place: str, start: str) -> None:
    process = writer(tmp_path / place, dead_process(), start)
    assert returns_while_writer_runs(tmp_path, process)


def test_without_writers_there_is_no_wait(tmp_path: Path) -> None:
    wait_for_writers(tmp_path, START)


def test_a_process_that_waits_to_be_reaped_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(child.pid)
    assert is_alive(os.getpid())
    assert not is_alive(2**22 + 1)
