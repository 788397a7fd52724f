"""Files of captures in programs that close what they inherited, and use the numbers again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm import open_dump
from ait_llm.dump.held_file import HeldFile

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_HOST = """
import os, sys, torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
own = []
with torch.no_grad():
    for number in range(4):
        if number == 2:
            os.closerange(3, 1024)
            paths = [f"{sys.argv[1]}/own{each}" for each in range(24)]
            own = [os.open(path, os.O_RDWR | os.O_CREAT) for path in paths]
        model(torch.ones(2, 8))
for each in own:
    os.write(each, b"mine")  # fails if somebody closed it
"""


@pytest.fixture
def held(tmp_path: Path) -> HeldFile:
    held = HeldFile(tmp_path / "held", _APPEND)
    held.append(b"one\n")
    return held


def in_its_place(held: HeldFile, path: Path) -> int:
    """Another file under the number of a held one."""
    file = os.open(path, _APPEND)
    other = os.dup2(file, held.descriptor())
    os.close(file)
    return other


def test_a_file_whose_descriptor_was_closed_is_opened_again(held: HeldFile, tmp_path: Path) -> None:
    os.close(held.descriptor())
    held.append(b"two\n")
    held.close()
    assert (tmp_path / "held").read_bytes() == b"one\ntwo\n"


def test_nothing_is_written_to_what_has_the_number_now(held: HeldFile, tmp_path: Path) -> None:
    other = in_its_place(held, tmp_path / "other")
    held.append(b"two\n")
    held.close()
    os.write(other, b"alive")
    os.close(other)
    assert (tmp_path / "other").read_bytes() == b"alive"
    assert (tmp_path / "held").read_bytes() == b"one\ntwo\n"


def test_what_has_the_number_now_is_not_closed(held: HeldFile, tmp_path: Path) -> None:
    other = in_its_place(held, tmp_path / "other")
    held.close()
    os.close(other)  # raises if it was closed


def test_a_number_that_was_closed_is_not_given_to_the_next_file(
    held: HeldFile, tmp_path: Path
) -> None:
    number = held.descriptor()
    os.close(number)
    other = os.open(tmp_path / "other", _APPEND)
    assert other < number
    held.close()
    os.close(other)


def test_another_file_of_its_name_is_not_written(held: HeldFile, tmp_path: Path) -> None:
    os.close(held.descriptor())
    (tmp_path / "held").rename(tmp_path / "moved")
    (tmp_path / "held").write_bytes(b"other")
    with pytest.raises(OSError, match=r"[Ss]tale"):
        held.append(b"two\n")
    assert not held.is_linked
    assert (tmp_path / "held").read_bytes() == b"other"


def test_a_link_in_its_place_is_not_followed(held: HeldFile, tmp_path: Path) -> None:
    os.close(held.descriptor())
    (tmp_path / "held").rename(tmp_path / "moved")
    (tmp_path / "held").symlink_to(tmp_path / "moved")
    with pytest.raises(OSError, match="link"):
        held.append(b"two\n")


def _ait(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ait_llm", "llm", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["torch", "torch-op", "torch-stats", "api"])
def test_a_program_that_closes_what_it_inherited_is_captured_and_keeps_its_files(
    tmp_path: Path, kind: str
) -> None:
    host = tmp_path / "host.py"
    host.write_text(_HOST, encoding="utf-8")
    out = tmp_path / "out"
    program = f"{sys.executable} {host} {tmp_path}"
    done = _ait("dump", "--exec", program, "--type", kind, "-er", "all", "-o", out)
    assert done.returncode == 0, done.stderr
    assert {path.read_bytes() for path in tmp_path.glob("own*")} == {b"mine"}
    assert _ait("show", out).returncode == 0
    if kind != "api":
        assert {each.step for each in open_dump(out).operations()} == {0, 1, 2, 3}
