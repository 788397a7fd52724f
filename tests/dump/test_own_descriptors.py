"""A program that closes descriptors and opens files again and again, while tensors are written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.native

_HOST = """
import os, sys, threading, torch
from ait_llm.dump.pytorch.tensor_jobs import Outcome, WriteJob
from ait_llm.dump.pytorch.writer import BackgroundWriter

folder, count = sys.argv[1], int(sys.argv[2])
tensor = torch.arange(512, dtype=torch.float32)
sparse = torch.eye(8).to_sparse()
outcome, is_done = Outcome(), threading.Event()
writer = BackgroundWriter()
for number in range(count):
    if number == 8:
        writer.drain()  # libraries are loaded by the first of each kind, as by the first call
    kind = {"plain": False, "tensor": sparse} if number % 50 == 7 else {"tensor": tensor}
    writer.put(WriteJob(f"{folder}/{number}.pth", outcome=outcome, **kind))
writer.call(is_done.set)
spoiled, rounds = [], 0
while not is_done.is_set() or rounds < 100:
    os.closerange(3, 64)
    names = [f"{folder}/own{rounds}_{each}" for each in range(4)]
    own = [os.open(name, os.O_RDWR | os.O_CREAT) for name in names]
    for file, name in zip(own, names):
        try:
            os.write(file, b"mine")
        except OSError as error:
            spoiled.append(f"{name}: {error}")
    for file, name in zip(own, names):
        if (size := os.stat(name).st_size) != 4:
            spoiled.append(f"{name}: {size} bytes")
        os.unlink(name)
    rounds += 1
writer.close()
lost = [outcome.reason] * outcome.lost
for number in range(count):
    read = torch.load(f"{folder}/{number}.pth")
    if not torch.equal(read.to_dense(), torch.eye(8) if read.is_sparse else tensor):
        lost.append(f"{number}: other values")
print(rounds, "rounds", lost[:3], spoiled[:3])
sys.exit(bool(lost) + 2 * bool(spoiled))
"""


# Containers may forbid these two with a filter like this one; the numbers are those of the kernel.
_REFUSED = """
import ctypes, platform, struct
unshare, close_range = {"x86_64": 272, "aarch64": 97}[platform.machine()], 436
steps = [(0x20, 0, 0, 0), (0x15, 2, 0, unshare), (0x15, 1, 0, close_range),
         (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
text = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
assert libc.unshare(0x400) == -1
"""
_WRITES = """
import os, sys, torch
from ait_llm.dump.pytorch.tensor_jobs import Outcome, WriteJob
from ait_llm.dump.pytorch.writer import BackgroundWriter

def write(name):
    writer, outcome = BackgroundWriter(), Outcome()
    for number in range(20):
        path = f"{sys.argv[1]}/{name}{number}.pth"
        writer.put(WriteJob(path, torch.full((4,), float(number)), outcome))
    writer.close()
    assert (outcome.tensors, outcome.lost) == (20, 0), outcome

write("one")
if not (child := os.fork()):  # which has none of the threads
    write("two")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for name in ("one", "two"):
    for number in range(20):
        read = torch.load(f"{sys.argv[1]}/{name}{number}.pth")
        assert torch.equal(read, torch.full((4,), float(number)))
"""


def run(source: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", source, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("start", ["", _REFUSED], ids=["allowed", "refused"])
def test_files_are_written_in_a_process_and_its_child_whether_a_table_of_its_own_is_allowed_or_not(
    tmp_path: Path, start: str
) -> None:
    done = run(start + _WRITES, str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_thread_that_writes_keeps_no_pipe_of_the_program_open(tmp_path: Path) -> None:
    """Who reads the other end would wait for ever."""
    source = (
        """
import os
reading, writing = os.pipe()
"""
        + _WRITES
        + """
os.close(writing)
os.set_blocking(reading, False)
assert os.read(reading, 1) == b""  # the end; BlockingIOError while somebody holds the pipe
"""
    )
    done = run(source, str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_of_a_program_that_closes_descriptors_while_tensors_are_written_stay_its_own(
    tmp_path: Path,
) -> None:
    done = run(_HOST, str(tmp_path), "1500")
    assert done.returncode == 0, done.stdout + done.stderr
