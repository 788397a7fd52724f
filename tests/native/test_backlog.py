"""A host that produces faster than its writer writes."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from native_host import Host, tensor

pytestmark = pytest.mark.native

SIZE = 300000


def ramp(start: int) -> bytes:
    return bytes((i * 131 + i // 256 + start) % 256 for i in range(SIZE))


def path(number: int) -> str:
    return f"0_{{pid}}/0/{number}_Op/after/outtensor0.bin"


@pytest.mark.parametrize("queue", ["65536", "1048576", "268435456"])
def test_the_last_value_of_each_path_is_on_disk(host1: Host, queue: str) -> None:
    lines = []
    for value in range(4):
        for number in range(20):
            lines.append(tensor(path(number), f"ramp:{SIZE}:{value + number}", dims="150000"))
            lines.append("before")
    run = host1.script(*lines, AIT_PROBE_QUEUE_BYTES=queue)
    files = run.bins()
    assert len(files) == 20
    for file in files:
        number = int(file.parents[1].name.partition("_")[0])
        assert file.read_bytes().partition(b"$End=1\n")[2] == ramp(3 + number)
    assert run.leftovers() == []
    operations = [line for line in run.ledger() if line["kind"] == "op"]
    assert len(operations) == 80
    assert {line["state"] for line in operations} == {"saved"}


def whole(file: Path, size: int) -> bool:
    return len(file.read_bytes().partition(b"$End=1\n")[2]) == size


def test_killed_while_it_writes_itself(host1: Host) -> None:
    size = 2 << 20
    process = host1.popen(
        "bench", options=["ops=100000", f"size={size}"], AIT_PROBE_QUEUE_BYTES="1048576"
    )
    folder = host1.output / "ait_dump" / "tensors"
    while len(list(folder.glob("*/*/*"))) < 10:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    run = host1.finish(process)
    files = run.bins()
    assert all(whole(file, size) for file in files)
    assert run.leftovers() == []
    seal = run.ledger()[-1]
    assert seal["end"] in ("signal 9", "unknown")
    assert seal["tensors"] == len(files)
    broken = [line for line in run.ledger() if line.get("state") == "failed"]
    assert len(broken) <= 1
    assert all("process ended while" in line["reason"] for line in broken)
