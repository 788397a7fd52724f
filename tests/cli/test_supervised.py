"""A command that works with Ray is told apart from one that Ray ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from ait_llm.cli import supervised
from ait_llm.errors import IncompleteError


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that stands in for the process of the command."""
    script = tmp_path / "work"
    script.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(supervised, "_PATIENCE_SECONDS", 0.1)
    return script


def test_the_code_of_a_command_that_says_how_it_ends_is_its_own(work: Path) -> None:
    work.write_text('#!/bin/sh\necho 1 > "$AIT_SUPERVISED"\nexit 1\n', "utf-8")
    assert supervised.supervise() == 1


def test_a_command_that_was_ended_with_1_is_incomplete_and_no_verdict(work: Path) -> None:
    work.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    with pytest.raises(IncompleteError, match=r"Ray ended the command \(exit code 1\)") as raised:
        supervised.supervise()
    assert raised.value.exit_code == 3


def test_a_signal_that_ended_the_command_is_in_its_code(work: Path) -> None:
    work.write_text("#!/bin/sh\nkill -9 $$\n", "utf-8")
    assert supervised.supervise() == 137


def test_what_was_started_and_not_ended_is_removed(work: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    work.write_text(
        f'#!/bin/sh\nsleep 600 &\necho $! > {pid}\necho 0 > "$AIT_SUPERVISED"\n', "utf-8"
    )
    assert supervised.supervise() == 0
    stat = Path("/proc", pid.read_text().strip(), "stat")
    for _ in range(100):  # a busy machine may take a while to deliver the signal
        if not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z"):
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def test_a_child_that_is_supervised_says_how_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(supervised.VARIABLE, str(tmp_path / "ended"))
    supervised.tell_end(3)
    assert (tmp_path / "ended").read_text() == "3"
