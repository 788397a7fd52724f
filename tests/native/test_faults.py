"""Disks that are full, gone or read-only; memory that runs out; threads, forks and two devices."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from native_host import Host, Run, call, make_host, tensor

pytestmark = pytest.mark.native

PATH = "0_{pid}/0/0_Op/after/outtensor0.bin"


def units(run: Run, pid: int | None = None) -> list[dict[str, Any]]:
    return [line for line in run.ledger(pid) if line["kind"] == "op"]


def op_tensor(number: int, size: int) -> str:
    path = f"0_{{pid}}/0/{number}_Op/after/outtensor0.bin"
    return tensor(path, f"ramp:{size}:{number}", dtype="2", dims=str(size))


def whole(file: Path) -> bool:
    """True where a tensor file holds what its header says."""
    header, _, data = file.read_bytes().partition(b"$End=1\n")
    length = next(line for line in header.splitlines() if line.startswith(b"$Object.Length="))
    return len(data) == int(length.partition(b"=")[2])


@pytest.mark.parametrize("queue", ["0", "1048576"])
def test_a_full_disk_is_recorded_and_said_once(
    native_build: Path, small_disk: Path, queue: str
) -> None:
    host = make_host(native_build, 1, small_disk / "out")
    lines = []
    for i in range(30):
        lines += [op_tensor(i, 100000), "before"]
    run = host.script(*lines, AIT_PROBE_MIN_FREE_BYTES="0", AIT_PROBE_QUEUE_BYTES=queue)
    assert run.returncode == 0
    assert run.answers == [False] * 30
    states = Counter(line["state"] for line in units(run))
    assert states["saved"] == len(run.bins()) > 0
    assert states["saved"] + states["failed"] == 30
    failed = [line for line in units(run) if line["state"] == "failed"]
    assert {line["errno"] for line in failed} == {28}
    assert sum(line["lost"] for line in failed) == len(failed)
    assert run.stderr.count("cannot write") == 1
    assert all(whole(file) for file in run.bins())
    assert run.leftovers() == []
    assert run.ledger()[-1]["kind"] == "seal"


def test_a_disk_that_has_room_again_is_used_again(native_build: Path, small_disk: Path) -> None:
    host = make_host(native_build, 1, small_disk / "out")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(900000))
    run = host.script(
        op_tensor(0, 300000),
        "before",
        call("sleep", 100),
        call("system", f"rm {filler}"),
        op_tensor(1, 300000),
        "before",
        AIT_PROBE_MIN_FREE_BYTES="0",
    )
    assert [line["state"] for line in units(run)] == ["failed", "saved"]


def test_free_space_is_left_on_the_disk(native_build: Path, small_disk: Path) -> None:
    host = make_host(native_build, 1, small_disk / "out")
    lines = [line for i in range(8) for line in (op_tensor(i, 100000), "before")]
    run = host.script(*lines, AIT_PROBE_MIN_FREE_BYTES="600000")
    assert 0 < len(run.bins()) < 5
    assert shutil.disk_usage(small_disk).free >= 600000 - 65536  # what the ledger keeps for itself
    assert "kept free" in next(u for u in units(run) if u["state"] == "failed")["reason"]


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@pytest.mark.parametrize("queue", ["0", "1048576"])
def test_a_read_only_output_changes_nothing_for_the_host(
    native_build: Path, small_disk: Path, queue: str
) -> None:
    host = make_host(native_build, 1, small_disk / "out")
    types = "tensor|op|kernel|layer|cpu_profiling|stats"
    with read_only(small_disk):
        run = host.trace(
            "rounds=3",
            ATB_DUMP_TYPE=types,
            ATB_SAVE_TENSOR_RANGE="all",
            AIT_PROBE_QUEUE_BYTES=queue,
        )
        assert (run.returncode, run.summary["failed"]) == (0, 0)
    assert run.stderr.count("cannot write") == 1
    assert "Read-only file system" in run.stderr
    assert list(host.output.iterdir()) == []


@pytest.mark.parametrize("queue", ["0", "1048576"])
def test_an_output_that_is_a_link_is_not_written_through(
    host1: Host, tmp_path: Path, queue: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (host1.output / "ait_dump").symlink_to(elsewhere)
    run = host1.trace(AIT_PROBE_QUEUE_BYTES=queue, ATB_DUMP_TYPE="tensor|layer|op")
    assert (run.returncode, run.summary["failed"]) == (0, 0)
    assert run.stderr.count("cannot write") == 1
    assert list(elsewhere.iterdir()) == []


def test_an_output_that_is_a_file_changes_nothing_for_the_host(host1: Host) -> None:
    (host1.output / "ait_dump").write_text("in the way")
    run = host1.trace()
    assert (run.returncode, run.summary["failed"]) == (0, 0)
    assert run.stderr.count("cannot write") == 1


@pytest.mark.parametrize("queue", ["0", "1048576"])
def test_an_output_removed_meanwhile_is_made_again_and_said(host1: Host, queue: str) -> None:
    run = host1.script(
        op_tensor(0, 1000),
        "before",
        call("sleep", 200),
        call("system", f"rm -rf {host1.output}/ait_dump"),
        op_tensor(1, 1000),
        "before",
        AIT_PROBE_QUEUE_BYTES=queue,
    )
    assert run.returncode == 0
    assert [file.parents[1].name for file in run.bins()] == ["1_Op"]
    assert run.stderr.count("was removed") == 1
    kinds = [line["kind"] for line in run.ledger()]
    assert kinds == ["header", "removed", "op", "seal"]
    assert run.ledger()[-1]["operations"] == 2


@pytest.fixture(params=["disk", "memory"])
def file_system(request: pytest.FixtureRequest, host1: Host) -> Iterator[None]:
    """Where the host writes: what a limit means is not the same on a disk and in memory."""
    if request.param == "disk":
        yield
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        host1.output = Path(folder) / "out"
        yield


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("queue", ["0", "1048576"])
def test_a_limit_on_file_sizes_does_not_end_the_host(host1: Host, queue: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))

    process = subprocess.Popen(
        [host1.driver, "script"],
        env=host1.environment(AIT_PROBE_QUEUE_BYTES=queue),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    lines = [op_tensor(0, 100000), "before", op_tensor(1, 1000), "before"]
    run = host1.finish(process, "\n".join(lines) + "\n")
    assert run.returncode == 0
    assert [line["state"] for line in units(run)] == ["failed", "saved"]
    assert units(run)[0]["errno"] == 27


@pytest.mark.parametrize("queue", ["0", "268435456"])
def test_a_host_without_memory_goes_on(host1: Host, queue: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (120 << 20, 120 << 20))

    process = subprocess.Popen(
        [host1.driver, "script"],
        env=host1.environment(AIT_PROBE_QUEUE_BYTES=queue, ATB_DUMP_TYPE="tensor|layer"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    lines = [op_tensor(0, 20000000), "before"]
    # The text takes 60 MB in the host; another copy or two do not fit any more.
    lines += [call("graph", "A_0", '{"x":"' + "y" * (30 << 20) + '"}')]
    lines += [op_tensor(1, 1000), "before"]
    run = host1.finish(process, "\n".join(lines) + "\n")
    assert run.returncode == 0, run.stderr
    assert len(run.answers) == 2
    assert [line["state"] for line in units(run)] == ["saved", "saved"]
    assert run.ledger()[-1]["kind"] == "seal"


def test_a_closed_standard_error_does_not_end_the_host(host1: Host) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    (host1.output / "ait_dump").write_text("in the way")
    for queue in ("0", "1048576"):
        done = subprocess.run(
            [host1.driver, "trace"],
            env=host1.environment(AIT_PROBE_QUEUE_BYTES=queue),
            stdout=subprocess.PIPE,
            stderr=write_end,
            check=False,
        )
        assert done.returncode == 0
    os.close(write_end)


@pytest.mark.parametrize("queue", ["0", "65536", "268435456"])
def test_eight_threads_lose_and_mix_nothing(host1: Host, queue: str) -> None:
    rounds = 42  # of six operations and four kernels: some thousand tensors per thread
    run = host1.trace(
        "threads=8",
        f"rounds={rounds}",
        "generation=91",
        ATB_DUMP_TYPE="tensor|op|kernel|cpu_profiling",
        ATB_SAVE_TENSOR_RANGE="all",
        AIT_PROBE_QUEUE_BYTES=queue,
    )
    assert run.summary["failed"] == 0
    assert len(run.bins()) == 8 * rounds * 29
    lines = units(run)
    assert len(lines) == 8 * rounds * 10
    assert all(count == 1 for count in Counter((u["path"], u["phase"]) for u in lines).values())
    assert {u["state"] for u in lines} == {"saved"}
    for n in range(rounds):
        for kind in ("operation", "kernel"):
            (table,) = (run.dump / f"{kind}_io_tensors").rglob(f"{kind}_tensors_{n}.csv")
            rows = table.read_text().splitlines()[1:]
            assert len(rows) == 32
            assert all(row.count("|") == 20 for row in rows)
            assert [row.split("|")[0] for row in rows] == [str(i + 1) for i in range(32)]
            files = [f for row in rows for f in row.split("|")[14].split(";")]
            assert all(Path(file).is_file() for file in files)
    (statistic,) = (run.dump / "cpu_profiling").rglob("operation_statistic_1.txt")
    assert len(statistic.read_text().splitlines()) == 8


@pytest.mark.parametrize("queue", ["0", "1048576"])
@pytest.mark.parametrize("end", ["exit", "_exit"])
def test_a_forked_child_captures_on_its_own(host: Host, queue: str, end: str) -> None:
    run = host.trace(
        "fork=1", f"child_end={end}", ATB_DUMP_TYPE="tensor|op", AIT_PROBE_QUEUE_BYTES=queue
    )
    assert (run.returncode, run.summary["child_status"]) == (0, 0)
    for pid in (run.summary["pid"], run.summary["child"]):
        assert len(list((run.dump / "tensors" / f"0_{pid}").rglob("*.bin"))) == 29
        assert (run.dump / "operation_io_tensors" / str(pid)).is_dir()
        sealed = run.ledger(pid)[-1]["kind"] == "seal"
        assert sealed == (end == "exit" or queue != "0" or pid == run.summary["pid"])


def test_forking_while_other_threads_capture_does_not_hang(host1: Host) -> None:
    run = host1.trace(
        "threads=4",
        "rounds=20",
        "fork=1",
        ATB_SAVE_TENSOR_RANGE="all",
        AIT_PROBE_QUEUE_BYTES="65536",
    )
    assert run.returncode == 0
    assert len(list((run.dump / "tensors" / f"0_{run.summary['child']}").rglob("*.bin"))) == 29 * 20


def test_two_processes_on_two_devices_share_a_directory(host1: Host) -> None:
    processes = [
        host1.popen(
            "trace",
            options=[f"device={device}", "rounds=3"],
            ATB_DUMP_TYPE="tensor|op|cpu_profiling",
            ATB_SAVE_TENSOR_RANGE="all",
            AIT_PROBE_START_TIME="20261121110000",
        )
        for device in (0, 1)
    ]
    runs = [host1.finish(process) for process in processes]
    for device, run in enumerate(runs):
        pid = run.summary["pid"]
        assert len(list((run.dump / "tensors" / f"{device}_{pid}").rglob("*.bin"))) == 87
        assert run.ledger(pid)[0]["device"] == str(device)
        assert run.ledger(pid)[-1]["rows"]["op"] == 12
    folders = list((runs[0].dump / "cpu_profiling").iterdir())
    assert len(folders) == 2
    assert all(len(list(folder.iterdir())) == 3 for folder in folders)


def test_memory_stays_below_the_limit_of_the_queue(host1: Host) -> None:
    size = 4 << 20
    queue = 8 << 20
    done = subprocess.run(
        [host1.driver, "bench", "ops=40", f"size={size}"],
        env=host1.environment(AIT_PROBE_QUEUE_BYTES=str(queue)),
        capture_output=True,
        text=True,
        check=True,
    )
    peak = json.loads(done.stdout)["peak_kib"] * 1024
    assert peak < size + queue + (16 << 20)  # the tensor, the queue, the program itself
    assert len(list(host1.output.rglob("*.bin"))) == 40


def test_a_tensor_of_four_gigabytes(host1: Host) -> None:
    size = (4 << 30) + 4096
    if shutil.disk_usage(host1.output).free < 10 << 30:
        pytest.skip("needs 10 GB of free disk")
    path = "0_{pid}/0/0_Op/after/outtensor0.bin"
    line = call("tensor", 2, 2, size, path, f"sparse:{size}")
    run = host1.script(line, "before", ATB_DUMP_TYPE="tensor")
    (file,) = run.bins()
    with file.open("rb") as opened:
        header = opened.read(200).partition(b"$End=1\n")[0]
        assert f"$Object.data=0,{size}".encode() in header
        opened.seek(-2, os.SEEK_END)
        assert opened.read() == b"\x00\x01"
    assert file.stat().st_size == len(header) + len(b"$End=1\n") + size
    assert units(run)[0]["bytes"] == size
    file.unlink()
