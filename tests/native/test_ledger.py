"""The ledger: what was captured, what was lost, how the process ended."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from native_host import Host, Run, call, tensor

pytestmark = pytest.mark.native

PATH = "0_{pid}/0/0_LinearOperation/after/outtensor0.bin"


def units(run: Run, pid: int | None = None) -> list[dict[str, Any]]:
    return [line for line in run.ledger(pid) if line["kind"] == "op"]


def test_the_header_says_who_captured_what(host: Host) -> None:
    run = host.trace(ATB_HOME_PATH="/opt/atb")
    header = run.ledger()[0]
    assert header["kind"] == "header"
    assert header["schema"] == 1
    assert header["producer"] == "atb_probe"
    assert header["abi"] == host.abi
    assert header["device"] == "0"
    assert header["pid"] == run.summary["pid"]
    assert Path(header["executable"]).name == f"probe_driver_abi{host.abi}"
    assert header["options"]["ATB_DUMP_TYPE"] == "tensor"
    assert header["environment"]["ATB_HOME_PATH"] == "/opt/atb"
    assert (run.dump / "ledger" / f"0_{run.summary['pid']}.jsonl").exists()


def test_each_operation_and_kernel_has_a_line_per_phase(host: Host) -> None:
    run = host.trace(ATB_SAVE_TENSOR_TIME="2")
    lines = units(run)
    pid = run.summary["pid"]
    assert len(lines) == 2 * (6 + 4)
    assert {
        "kind": "op",
        "op": "0_1_0",
        "type": "LinearOperation",
        "path": f"0_{pid}/0/0_DecoderLayer/1_Mlp/0_LinearOperation",
        "phase": "after",
        "step": 0,
        "state": "saved",
        "tensors": 3,
        "bytes": 24,
    } in lines
    assert {(line["op"], line["type"]) for line in lines if line["type"].endswith("Kernel")} == {
        ("0_0_0", "PpMatMulF16Kernel"),
        ("0_1_0_0", "PpMatMulF16Kernel"),
        ("0_1_1_0", "SwishF16Kernel"),
        ("0_2_0", "AddF16Kernel"),
    }


def test_the_seal_adds_up(host: Host) -> None:
    run = host.trace(
        "rounds=2",
        "empty=1",
        ATB_DUMP_TYPE="tensor|op|kernel|cpu_profiling|layer",
        ATB_SAVE_TENSOR_RANGE="0,1",
    )
    seal = run.ledger()[-1]
    lines = units(run)
    assert seal["kind"] == "seal"
    assert seal["end"] == "exit"
    assert seal["operations"] == len(lines)
    assert seal["tensors"] == sum(line["tensors"] for line in lines) == len(run.bins())
    assert seal["bytes"] == sum(line["bytes"] for line in lines)
    files = [path for path in run.dump.rglob("*") if path.suffix in (".bin", ".json")]
    assert seal["files"] == len(files)
    assert seal["rows"] == {"op": 8, "kernel": 8, "cpu_profiling": 2, "layer": 1}
    states = ("saved", "described", "empty", "failed", "dropped")
    assert sum(seal[state] for state in states) == seal["operations"]


def test_descriptions_are_called_so(host: Host) -> None:
    run = host.trace(ATB_SAVE_TENSOR="2")
    assert {line["state"] for line in units(run)} == {"described"}
    assert run.ledger()[-1]["bytes"] == 0


def test_a_selection_that_never_applies_leaves_a_sealed_ledger(host: Host) -> None:
    run = host.trace(ATB_SAVE_TENSOR_RANGE="7,7")
    assert [line["kind"] for line in run.ledger()] == ["header", "seal"]
    assert run.ledger()[-1]["operations"] == 0


def test_a_host_that_hands_over_no_tensor_is_recorded(host: Host) -> None:
    folder = "0_{pid}/0/0_Op"
    run = host.script(call("dir", folder), "after", "data", "isparam")
    (line,) = units(run)
    assert line["state"] == "empty"
    assert line["op"] == "0"
    assert line["phase"] == "after"
    assert line["path"] == folder.format(pid=run.pid)


@pytest.mark.parametrize(
    ("end", "recorded", "status"),
    [
        ("exit", "exit", 0),
        ("_exit", "_exit", 0),
        ("quick_exit", "_exit", 0),
        ("abort", "signal 6", -signal.SIGABRT),
        ("segv", "signal 11", -signal.SIGSEGV),
        ("term", "signal 15", -signal.SIGTERM),
        ("kill", "signal 9", -signal.SIGKILL),
        ("exec", "exec", 0),
    ],
)
def test_nothing_is_lost_however_the_process_ends(
    host: Host, end: str, recorded: str, status: int
) -> None:
    run = host.trace(f"end={end}")
    assert run.returncode == status
    assert len(run.bins()) == 29
    seal = run.ledger()[-1]
    # Before Linux 6.15 a status that the parent has collected already cannot be read any more.
    assert seal["end"] in ({recorded} if end in ("exit", "exec") else {recorded, "unknown"})
    assert seal["tensors"] == 29


def test_a_burst_right_before_the_end_is_on_disk(host: Host) -> None:
    lines = [
        tensor(f"0_{{pid}}/0/{i}_Op/after/outtensor0.bin", f"ramp:100000:{i}", dims="50000")
        for i in range(300)
    ]
    run = host.script(*lines, "end\tkill")
    assert len(run.bins()) == 300
    assert units(run)[-1]["cut"] is True
    assert run.ledger()[-1]["tensors"] == 300


def test_killed_in_the_middle_of_many_operations(host1: Host) -> None:
    process = host1.popen(
        "trace",
        options=["rounds=100000"],
        ATB_SAVE_TENSOR_RANGE="all",
        AIT_PROBE_MIN_FREE_BYTES="0",
    )
    while len(list((host1.output / "ait_dump" / "tensors").glob("*/*"))) < 5:
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    run = host1.finish(process)
    lines = units(run)
    assert run.ledger()[-1]["kind"] == "seal"
    assert run.ledger()[-1]["tensors"] == sum(line["tensors"] for line in lines)
    files = run.bins()
    assert len(files) == run.ledger()[-1]["tensors"]
    assert run.leftovers() == []
    assert len({file.stat().st_size for file in files}) == 1


def test_a_writer_that_is_killed_leaves_the_ledger_unsealed(host1: Host) -> None:
    process = host1.popen("script")
    assert process.stdin is not None
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    process.stdin.write(tensor(PATH) + "\nbefore\n")
    process.stdin.flush()
    process.stdout.readline()
    writers = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_writer_of(entry, pid)
    ]
    assert len(writers) == 1
    subprocess.run(["kill", "-9", str(writers[0])], check=True)
    run = host1.finish(process, tensor(PATH.replace("0_Lin", "1_Lin")) + "\nbefore\n")
    assert run.returncode == 0
    assert run.stderr.count("has ended") == 1
    # It may have been killed before it wrote a line.
    assert all(line["kind"] != "seal" for line in run.ledger())


def _is_writer_of(process: Path, pid: int) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"ait_probe_writer") and words[4] == str(pid).encode()


def test_without_a_writer_the_host_writes_itself(host: Host, tmp_path: Path) -> None:
    alone = tmp_path / host.probe.name
    alone.write_bytes(host.probe.read_bytes())
    host.probe = alone
    run = host.trace("generation=91", ATB_DUMP_TYPE="tensor|op|kernel|layer")
    assert len(run.bins()) == 29
    assert run.ledger()[0]["writer"] == "host"
    assert run.ledger()[-1]["end"] == "exit"


@pytest.mark.parametrize("end", ["_exit", "kill"])
def test_a_host_that_writes_itself_keeps_what_it_had(host: Host, end: str) -> None:
    run = host.trace(f"end={end}", AIT_PROBE_QUEUE_BYTES="0")
    assert len(run.bins()) == 29
    assert run.ledger()[-1]["kind"] == "op"


def test_an_older_ledger_of_the_same_process_id_is_replaced(host1: Host) -> None:
    process = host1.popen("script")
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    folder = host1.output / "ait_dump" / "ledger"
    folder.mkdir(parents=True)
    (folder / f"0_{pid}.jsonl").write_text('{"kind":"op"}\n')
    process.stdin.write(tensor(PATH) + "\n") if process.stdin else None
    run = host1.finish(process)
    assert [line["kind"] for line in run.ledger(pid)] == ["header", "op", "seal"]


def test_names_with_quotes_stay_json(host1: Host) -> None:
    run = host1.script(tensor('0_{pid}/0/0_A"b\\\\/after/outtensor0.bin'), "before")
    (line,) = units(run)
    assert line["type"] == 'A"b\\'
    text = next((run.dump / "ledger").iterdir()).read_text()
    assert all(json.loads(row) for row in text.splitlines())
