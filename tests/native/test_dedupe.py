"""Identical tensors stored once."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_host import Host, Run, tensor

pytestmark = pytest.mark.native


def path(number: int, name: str = "outtensor0") -> str:
    return f"0_{{pid}}/0/{number}_Op/after/{name}.bin"


def file_of(run: Run, number: int, name: str = "outtensor0") -> Path:
    (file,) = run.dump.glob(f"tensors/*/0/{number}_Op/after/{name}.bin")
    return file


def data_of(file: Path) -> bytes:
    header, _, data = file.read_bytes().partition(b"$End=1\n")
    alias = [line for line in header.splitlines() if line.startswith(b"data=")]
    if alias:
        assert b"$Object.Count=0" in header
        return data_of(file.parent / alias[0].partition(b"=")[2].decode())
    return data


@pytest.mark.parametrize("queue", ["0", "1048576", "268435456"])
@pytest.mark.parametrize("size", [8, 3000000])
def test_equal_tensors_are_links_to_one_file(host1: Host, size: int, queue: str) -> None:
    ramp = f"ramp:{size}:1"
    run = host1.script(
        tensor(path(0), ramp),
        "before",
        tensor(path(1), ramp),
        "before",
        tensor(path(2), f"ramp:{size}:2"),
        AIT_PROBE_DEDUPE="1",
        AIT_PROBE_QUEUE_BYTES=queue,
    )
    assert file_of(run, 0).samefile(file_of(run, 1))
    assert not file_of(run, 0).samefile(file_of(run, 2))
    assert run.ledger()[-1]["shared"] == 1
    assert run.ledger()[-1]["tensors"] == 3
    assert run.ledger()[-1]["bytes"] == 3 * size
    assert run.leftovers() == []


def test_without_the_option_each_file_is_its_own(host1: Host) -> None:
    run = host1.script(tensor(path(0)), tensor(path(1)))
    assert not file_of(run, 0).samefile(file_of(run, 1))


@pytest.mark.parametrize("size", [64, 3000000])
def test_another_view_of_the_same_bytes_is_an_alias(host1: Host, size: int) -> None:
    ramp = f"ramp:{size}:1"
    run = host1.script(
        tensor(path(0), ramp, dims=f"{size // 2}"),
        tensor(path(1, "intensor3"), ramp, dims=f"2,{size // 4}"),
        AIT_PROBE_DEDUPE="1",
    )
    alias = file_of(run, 1, "intensor3")
    assert alias.stat().st_size < 200
    assert b"\ndata=../../0_Op/after/outtensor0.bin\n" in alias.read_bytes()
    assert f"dims=2,{size // 4}\n".encode() in alias.read_bytes()
    assert data_of(alias) == data_of(file_of(run, 0))
    assert len(data_of(alias)) == size


def test_replacing_a_file_leaves_what_refers_to_it_intact(host1: Host) -> None:
    first = "ramp:64:1"
    run = host1.script(
        tensor(path(0), first, dims="32"),
        tensor(path(1), first, dims="32"),
        tensor(path(2), first, dims="2,16"),
        tensor(path(0), "ramp:64:9", dims="32"),
        AIT_PROBE_DEDUPE="1",
    )
    old = bytes((i * 131 + 1) % 256 for i in range(64))
    assert data_of(file_of(run, 0)) != old
    assert data_of(file_of(run, 1)) == old
    assert data_of(file_of(run, 2)) == old
    assert b"dims=2,16" in file_of(run, 2).read_bytes()


def test_an_alias_that_is_replaced_is_forgotten(host1: Host) -> None:
    run = host1.script(
        tensor(path(0), "ramp:64:1", dims="32"),
        tensor(path(1), "ramp:64:1", dims="2,16"),
        tensor(path(1), "ramp:64:5", dims="32"),
        tensor(path(0), "ramp:64:9", dims="32"),
        AIT_PROBE_DEDUPE="1",
    )
    assert data_of(file_of(run, 1)) == bytes((i * 131 + 5) % 256 for i in range(64))


def test_the_same_path_saved_again_unchanged_stays(host1: Host) -> None:
    run = host1.script(tensor(path(0)), tensor(path(0)), AIT_PROBE_DEDUPE="1")
    assert len(data_of(file_of(run, 0))) == 8
    assert run.leftovers() == []


def test_a_file_that_was_changed_meanwhile_is_not_shared(host1: Host) -> None:
    process = host1.popen("script", AIT_PROBE_DEDUPE="1")
    assert process.stdin is not None
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    process.stdin.write(tensor(path(0)) + "\nbefore\n")
    process.stdin.flush()
    process.stdout.readline()
    target = host1.output / f"ait_dump/tensors/0_{pid}/0/0_Op/after/outtensor0.bin"
    while not target.exists():
        pass
    target.write_bytes(target.read_bytes()[:-1] + b"\x00")
    run = host1.finish(process, tensor(path(1)) + "\n")
    assert data_of(file_of(run, 1)) == bytes.fromhex("003c00c00038007c")


def test_a_whole_trace_reads_back_the_same_with_and_without(host1: Host) -> None:
    plain = host1.trace("rounds=2", ATB_SAVE_TENSOR_RANGE="all")
    expected = {file.relative_to(plain.dump).parts[2:]: data_of(file) for file in plain.bins()}
    host1.output = host1.output.parent / "deduped"
    deduped = host1.trace("rounds=2", ATB_SAVE_TENSOR_RANGE="all", AIT_PROBE_DEDUPE="1")
    found = {file.relative_to(deduped.dump).parts[2:]: data_of(file) for file in deduped.bins()}
    assert found == expected
    assert deduped.ledger()[-1]["shared"] > 0
