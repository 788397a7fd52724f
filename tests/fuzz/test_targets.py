"""Every reader keeps its promise on a fixed number of damaged files, and on all that broke it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import corpus
import pytest
from corpus import MAX_FILES, MAX_TOTAL, keep, kept
from engine import Target, fuzz, replay
from regressions import REGRESSIONS
from targets import all_targets

from ait_llm.errors import FormatError

_INPUTS = 60
_SEED = 20260
_RUN = Path(__file__).with_name("run.py")
_SLOW = 12  # of a target that opens a whole dump each time


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """What a run of all targets found, in one process: loading torch takes longer than most."""
    command = [sys.executable, str(_RUN), "--json", "--kept", "--seed", str(_SEED), "--iterations"]
    slow = [name for name, target in all_targets().items() if target.surround is not None]
    found = {}
    for count, names in ((_SLOW, slow), (_INPUTS, [*all_targets().keys() - slow])):
        chosen = [word for name in names for word in ("--target", name)]
        done = subprocess.run([*command, str(count), *chosen], capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
        for line in done.stdout.splitlines():
            outcome = json.loads(line)
            found[outcome["target"]] = outcome
    return found


@pytest.mark.parametrize("name", sorted(all_targets()))
def test_a_damaged_file_is_read_or_refused_with_its_name(
    outcomes: dict[str, Any], name: str
) -> None:
    outcome = outcomes[name]
    texts = [f"number {each['number']}: {each['text']}" for each in outcome["findings"]]
    assert not texts, "\n".join(texts)
    assert outcome["inputs"] in (_INPUTS, _SLOW)
    assert outcome["kept"] == len(kept(name))
    assert outcome["accepted"] > 0, "no input was good enough to reach the inner parts"


@pytest.mark.parametrize("number", range(len(REGRESSIONS)))
def test_a_file_that_once_broke_a_reader(number: int) -> None:
    name, data = REGRESSIONS[number]
    outcome = replay(all_targets()[name], [data])
    assert [finding.text for finding in outcome.findings] == []


@pytest.mark.parametrize("name", sorted(all_targets()))
def test_few_and_small_files_are_kept_of_a_reader(name: str) -> None:
    files = kept(name)
    assert len(files) <= MAX_FILES
    assert sum(map(len, files)) <= MAX_TOTAL


def test_files_are_kept_that_go_ways_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = all_targets()["npy"]
    found = tmp_path / "found"
    found.mkdir()
    good = target.corpus[0]
    for number, data in enumerate((good, good, b"\x93NUMPX", b"\x93NUMPY\x09", b"x" * 5000)):
        (found / str(number)).write_bytes(data)
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    assert keep(target, found) == 2  # not the good one, nor the large one
    assert sorted(kept("npy")) == [b"\x93NUMPX", b"\x93NUMPY\x09"]


def _outcome(read: Any, data: bytes = b"x") -> list[str]:
    target = Target("broken", "x.bin", lambda: [b"x"], read)
    return [finding.kind for finding in replay(target, [data]).findings]


def _hang(path: Path) -> None:
    import engine

    engine.signal.setitimer(engine.signal.ITIMER_PROF, 0.05)
    while True:
        pass


def _wait(path: Path) -> None:
    import engine

    engine.signal.setitimer(engine.signal.ITIMER_REAL, 0.05)
    threading.Event().wait()


def _write_outside(path: Path) -> None:
    (path.parents[1] / "new").write_text("x")


def _read_outside(path: Path) -> None:
    (path.parents[2] / "outside" / "secret.npy").read_bytes()


def _refuse_without_name(path: Path) -> None:
    raise FormatError("other.bin", "is damaged")


def _refuse(path: Path) -> None:
    raise FormatError(path, "is damaged")


def test_the_engine_sees_each_way_to_break_the_promise() -> None:
    def crash(path: Path) -> None:
        import ctypes

        ctypes.string_at(0)

    assert _outcome(lambda path: 1 // 0) == ["ZeroDivisionError the target"]
    assert _outcome(crash) == ["SIGSEGV"]
    assert _outcome(_hang) == ["SIGPROF"]
    assert _outcome(_wait) == ["SIGALRM"]
    assert _outcome(lambda path: bytearray(100 << 20)) == ["memory"]
    assert _outcome(lambda path: bytearray(4 << 30)) == ["MemoryError the target"]
    assert _outcome(lambda path: subprocess.run(["true"]))[0].startswith("escape subprocess")
    assert _outcome(_write_outside)[0].startswith("escape writes")
    assert _outcome(_read_outside)[0].startswith("escape opens")
    assert _outcome(_refuse_without_name)[0].startswith("unnamed FormatError")
    assert _outcome(_refuse) == []


def test_the_engine_goes_on_behind_a_crash() -> None:
    def crash_on_first(path: Path) -> None:
        if path.read_bytes() == b"1":
            import os

            os.abort()
        raise ValueError

    target = Target("broken", "x.bin", lambda: [b"x"], crash_on_first)
    outcome = replay(target, [b"0", b"1", b"2"])
    assert outcome.inputs == 3
    assert [finding.kind for finding in outcome.findings] == ["SIGABRT", "ValueError the target"]


def test_the_same_numbers_make_the_same_files() -> None:
    npy = all_targets()["npy"]
    assert npy.input(3, 5) == npy.input(3, 5)
    assert len({npy.input(3, number) for number in range(50)}) > 40
    assert fuzz(npy, 3, range(5)).inputs == 5


def test_the_record_of_what_was_found_has_no_paths_of_the_machine_that_found_it() -> None:
    record = json.loads(Path(__file__).with_name("explored.json").read_text("utf-8"))
    findings = [finding for each in record.values() for finding in each["findings"]]
    assert findings
    assert all(not finding["text"] and finding["data"] for finding in findings)
