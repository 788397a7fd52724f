"""A command that works with Ray is told apart from one that Ray ended."""

from __future__ import annotations

import queue
import sys
import time
from pathlib import Path

import pytest

from ait_llm.cli import supervised
from ait_llm.engine import ray_silence
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


class TestWatch:
    """Whether Ray answers."""

    @pytest.fixture
    def ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> queue.Queue[int]:
        monkeypatch.setenv(supervised.VARIABLE, str(tmp_path / "ended"))
        found: queue.Queue[int] = queue.Queue()
        supervised.watch_ray(0.3, found.put)
        return found

    def test_a_command_that_ray_does_not_answer_ends_as_incomplete_and_says_so(
        self, ended: queue.Queue[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with ray_silence.asking():
            assert ended.get(timeout=20) == 3
        assert (tmp_path / "ended").read_text() == "3"
        assert "ait: error: Ray has not answered for 0 s" in capfd.readouterr().err

    def test_work_between_calls_may_take_any_time(self, ended: queue.Queue[int]) -> None:
        for _ in range(8):
            with ray_silence.asking():
                time.sleep(0.05)
            time.sleep(0.1)
        assert ended.empty()
        with ray_silence.asking():  # so that its thread ends
            ended.get(timeout=20)

    def test_what_asks_within_a_call_is_silent_no_longer_than_itself(self) -> None:
        with ray_silence.asking():
            time.sleep(0.05)
            with ray_silence.asking():
                assert ray_silence.silent_seconds() < 0.05
            assert ray_silence.silent_seconds() >= 0.05
        assert not ray_silence.silent_seconds()
