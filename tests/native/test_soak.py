"""A small soak: programs and writers killed at random leave nothing that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soaking import Settings, run, words_of

from ait_llm.dump.leftovers import remove_leftovers

pytestmark = pytest.mark.native


@pytest.mark.parametrize("queue_bytes", [0, 1 << 16, 1 << 24])
def test_what_random_kills_leave_is_whole(
    native_build: Path, tmp_path: Path, queue_bytes: int
) -> None:
    settings = Settings(
        build=native_build,
        output=tmp_path,
        operations=30,
        threads=4,
        processes=2,
        rounds=3,
        queue_bytes=queue_bytes,
        seed=3,
    )
    result = run(settings)
    assert result.problems == []
    assert result.counts["operations"] == 240
    assert result.counts["files"] > 0


def test_bytes_follow_from_the_number() -> None:
    assert words_of(0).tolist()[:1] == [0]
    assert words_of(63).size > 8192 > words_of(64).size
    assert len({words_of(number).tobytes() for number in range(200)}) == 200


def test_unfinished_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    names = [".ait-4194305-0", f".ait-{os.getpid()}-0", ".ait-x-1", "outtensor0.bin", ".ait-²-1"]
    for name in names:
        (tmp_path / name).touch()
    assert remove_leftovers(tmp_path) == [tmp_path / names[0]]
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])
