"""Hosts that close the probe's descriptors, writers that stop or come late: nothing hangs."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from native_host import Host, Run, call, make_host, tensor

pytestmark = pytest.mark.native

SIGNAL = "kill -{} $(LD_PRELOAD= pgrep -f 'ait_probe_writer [0-9]+ [0-9]+ [0-9-]+ {{pid}} ')"


def save(number: int, size: int = 1000) -> str:
    path = f"0_{{pid}}/0/{number}_Op/after/outtensor0.bin"
    return tensor(path, f"ramp:{size}:{number}", dtype="2", dims=str(size)) + "\nbefore"


def units(run: Run) -> list[dict[str, Any]]:
    return [line for line in run.ledger() if line["kind"] == "op"]


def signal_writer(name: str) -> str:
    return call("system", SIGNAL.format(name))


@pytest.mark.parametrize(
    "settings",
    [{}, {"AIT_PROBE_DEDUPE": "1"}, {"AIT_PROBE_QUEUE_BYTES": "0"}],
    ids=["helped", "dedupe", "host"],
)
@pytest.mark.parametrize("reused", [None, "sockets", "files", "folders"])
def test_a_host_may_close_what_it_inherited(
    host: Host, tmp_path: Path, settings: dict[str, str], reused: str | None
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "file").write_text("of the host")
    taken = {
        None: [],
        "sockets": [call("sockets", 64)],
        "files": [call("files", 128, own / "file", "file")],
        "folders": [call("files", 128, own, "folder")],
    }[reused]
    lines = [save(i) for i in range(3)]
    lines += [call("sleep", 400), call("closerange"), *taken, call("sleep", 1500)]
    lines += [save(i) for i in range(3, 43)]
    lines += [call("heard")] if reused == "sockets" else []
    run = host.script(*lines, **settings)
    assert run.returncode == 0
    assert len(run.bins()) == 43
    assert Counter(line["state"] for line in units(run)) == {"saved": 43}
    assert (run.ledger()[-1]["kind"], run.ledger()[-1]["end"]) == ("seal", "exit")
    assert "removed" not in {line["kind"] for line in run.ledger()}
    assert (own / "file").read_text() == "of the host"
    assert [path.name for path in own.iterdir()] == ["file"]
    if reused == "sockets":
        assert run.stdout.splitlines()[-1] == "heard 0"
    assert run.leftovers() == []


@pytest.mark.parametrize("end", ["kill", "exec", "_exit"])
def test_the_end_is_told_where_the_host_closed_the_descriptors(host1: Host, end: str) -> None:
    run = host1.script(save(0), call("sleep", 300), call("closerange"), save(1), call("end", end))
    assert len(run.bins()) == 2
    # What replaced the program may have ended too when it was looked at.
    known = {"signal 9"} if end == "kill" else {end, "_exit"}
    assert run.ledger()[-1]["end"] in known | {"unknown"}


def test_a_stopped_writer_does_not_stop_the_host(host1: Host) -> None:
    lines = [save(0), call("sleep", 300), signal_writer("STOP")]
    lines += [save(i, 20000) for i in range(1, 12)]
    process = host1.popen("script", AIT_PROBE_QUEUE_BYTES="65536", AIT_PROBE_PATIENCE_SECONDS="1")
    assert process.stdin is not None
    began = time.monotonic()
    process.stdin.write("\n".join([*lines, call("say", "over"), signal_writer("CONT")]) + "\n")
    process.stdin.flush()
    run = host1.finish(process)
    assert time.monotonic() - began < 30
    assert run.returncode == 0
    assert run.stderr.count("has given no sign of life for 1 s") == 1
    seal = run.ledger()[-1]
    assert seal["kind"] == "seal"
    assert seal["dropped"] > 0
    assert seal["operations"] == 12
    assert seal["saved"] == len(run.bins()) >= 1


def test_a_writer_that_is_stopped_at_the_end_does_not_hold_the_host(host1: Host) -> None:
    process = host1.popen("script", AIT_PROBE_PATIENCE_SECONDS="1")
    assert process.stdin is not None
    assert process.stdout is not None
    pid = process.stdout.readline().split()[1]
    process.stdin.write(f"{save(0)}\n{call('sleep', 300)}\n{signal_writer('STOP')}\n{save(1)}\n")
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    subprocess.run(SIGNAL.format("CONT").format(pid=pid), shell=True, check=True)
    process.stdin = None
    stdout, stderr = process.communicate(timeout=30)
    run = Run(0, stdout, stderr, host1.output)
    assert "no sign of life" in stderr
    assert [line["state"] for line in units(run)] == ["saved", "saved"]
    assert run.ledger()[-1]["kind"] == "seal"


def test_a_writer_that_comes_too_late_leaves_the_host_alone(host1: Host, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    probe = Path(shutil.copy(host1.probe, folder))
    writer = host1.probe.with_name("ait_probe_writer")
    (folder / writer.name).write_text(f'#!/bin/sh\nsleep 2.5\nexec {writer} "$@"\n')
    (folder / writer.name).chmod(0o755)
    host1.probe = probe
    run = host1.script(save(0), call("sleep", 3000), save(1), AIT_PROBE_PATIENCE_SECONDS="1")
    assert [line["state"] for line in units(run)] == ["saved", "saved"]
    assert (run.ledger()[0]["writer"], run.ledger()[-1]["kind"]) == ("host", "seal")
    assert "removed" not in run.stderr


@pytest.mark.parametrize("queue", ["0", "1048576"])
def test_a_disk_without_any_room_is_told_in_the_ledger(
    native_build: Path, small_disk: Path, queue: str
) -> None:
    """Many small operations: their lines alone would fill the disk."""
    host = make_host(native_build, 1, small_disk / "out")
    run = host.script(
        save(0),
        call("sleep", 300),
        call("system", f"head -c 1000000 /dev/zero > {small_disk}/filler 2>/dev/null; true"),
        *[save(i, 100) for i in range(1, 3000)],
        AIT_PROBE_MIN_FREE_BYTES="0",
        AIT_PROBE_QUEUE_BYTES=queue,
    )
    seal = run.ledger()[-1]
    assert seal["kind"] == "seal"
    assert seal["operations"] == 3000
    assert seal["saved"] == len(run.bins())
    assert seal["failed"] == 3000 - seal["saved"] > 0
    lost = sum(line["lines"] for line in run.ledger() if line["kind"] == "lost")
    assert lost + len(units(run)) == 3000
