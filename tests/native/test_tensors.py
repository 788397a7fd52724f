"""Tensor files: their bytes, their number, their places."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from native_host import Host, call, tensor

pytestmark = pytest.mark.native

EXAMPLE = bytes.fromhex(
    "2456657273696f6e3d312e300a244f62"
    "6a6563742e436f756e743d310a244f62"
    "6a6563742e4c656e6774683d380a666f"
    "726d61743d320a64747970653d310a64"
    "696d733d322c320a244f626a6563742e"
    "646174613d302c380a24456e643d310a"
    "003c00c00038007c"
)
DESCRIPTION = (
    b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,2\n$End=1\n"
)
PATH = "0_{pid}/0/0_LinearOperation/after/outtensor0.bin"


def test_the_worked_example_is_written_byte_for_byte(host: Host) -> None:
    run = host.script(tensor(PATH))
    (file,) = run.bins()
    assert file.relative_to(run.dump / "tensors") == Path(PATH.format(pid=run.pid))
    assert file.read_bytes() == EXAMPLE


def test_a_description_has_no_data(host: Host) -> None:
    run = host.script(tensor(PATH), ATB_SAVE_TENSOR="2")
    (file,) = run.bins()
    assert file.read_bytes() == DESCRIPTION
    assert len(DESCRIPTION) == 79


def test_an_empty_tensor_with_a_shape_is_a_description(host: Host) -> None:
    run = host.script(tensor(PATH, "null", dims="0,4"))
    (file,) = run.bins()
    assert file.read_bytes() == DESCRIPTION.replace(b"2,2", b"0,4")


def test_an_optional_tensor_that_was_not_given_leaves_no_file(host: Host) -> None:
    run = host.script(tensor(PATH, "null", format="-1", dtype="-1", dims=""), "before")
    assert run.bins() == []
    assert [line["state"] for line in run.ledger() if line["kind"] == "op"] == ["empty"]


@pytest.mark.parametrize("sparse", ["1", "2"])
def test_a_scalar_has_empty_dims(host: Host, sparse: str) -> None:
    run = host.script(tensor(PATH, "hex:003c", dims=""), ATB_SAVE_TENSOR=sparse)
    (file,) = run.bins()
    assert b"\ndims=\n" in file.read_bytes()
    assert file.read_bytes().endswith(b"\x00\x3c" if sparse == "1" else b"$End=1\n")


@pytest.mark.parametrize("size", [65535, 1048576, 1048577, 5000001])
@pytest.mark.parametrize("queue", ["0", "65536", "268435456"])
def test_any_size_passes_any_queue_unchanged(host1: Host, size: int, queue: str) -> None:
    run = host1.script(
        tensor(PATH, f"ramp:{size}:7", dtype="2", dims=str(size)), AIT_PROBE_QUEUE_BYTES=queue
    )
    (file,) = run.bins()
    data = file.read_bytes().partition(b"$End=1\n")[2]
    assert data == bytes((i * 131 + i // 256 + 7) % 256 for i in range(size))


def test_saving_a_path_again_replaces_the_file(host: Host) -> None:
    run = host.script(tensor(PATH, "ramp:4096:1", dims="2048"), tensor(PATH))
    (file,) = run.bins()
    assert file.read_bytes() == EXAMPLE
    assert run.leftovers() == []


def test_a_second_run_into_the_same_folder_leaves_valid_files(host: Host) -> None:
    path = "0_77/0/0_Op/after/outtensor0.bin"
    host.script(tensor(path, "ramp:4096:1", dims="2048"))
    run = host.script(tensor(path))
    (file,) = run.bins()
    assert file.read_bytes() == EXAMPLE
    assert len(list((run.dump / "ledger").iterdir())) == 2


def test_modes_follow_the_umask(host: Host) -> None:
    for queue, mask in (("0", 0o077), ("65536", 0o077), ("0", 0), ("65536", 0o022)):
        old = os.umask(mask)
        try:
            run = host.script(tensor(PATH), AIT_PROBE_QUEUE_BYTES=queue)
        finally:
            os.umask(old)
        for path in (run.dump, *run.dump.rglob("*")):
            expected = (0o750 if path.is_dir() else 0o640) & ~mask
            assert stat.S_IMODE(path.stat().st_mode) == expected, path
        shutil.rmtree(run.dump)


COUNTS = [
    ({}, 29, 4),
    ({"ATB_SAVE_TENSOR_PART": "1"}, 10, 4),
    ({"ATB_SAVE_TENSOR_PART": "0"}, 19, 4),
    ({"ATB_SAVE_TENSOR_TIME": "2"}, 58, 4),
    ({"ATB_SAVE_TENSOR_IDS": "0_1"}, 13, 2),
    ({"ATB_SAVE_TENSOR_IDS": "0_1", "ATB_SAVE_CHILD": "0"}, 3, 0),
    ({"ATB_SAVE_TENSOR_RUNNER": "linear"}, 12, 2),
    ({"ATB_SAVE_TENSOR_RUNNER": "mlp"}, 3, 0),
]


@pytest.mark.parametrize("generation", ["80", "81", "83", "91"])
@pytest.mark.parametrize(("settings", "bins", "params"), COUNTS)
def test_the_worked_trace_leaves_its_files(
    host: Host, settings: dict[str, str], bins: int, params: int, generation: str
) -> None:
    run = host.trace(f"generation={generation}", **settings)
    assert run.summary["failed"] == 0
    assert len(run.bins()) == bins
    assert len(run.bins("op_param.json")) == params
    assert run.leftovers() == []


def test_parameters_end_with_a_line_break(host: Host) -> None:
    run = host.trace()
    files = run.bins("op_param.json")
    assert all(file.read_text().endswith("}\n") for file in files)
    assert all(json.loads(file.read_text()) for file in files)


def test_buffers_may_be_reused_right_after_the_call(host: Host) -> None:
    run = host.trace("rounds=3", "generation=91", ATB_SAVE_TENSOR_RANGE="all")
    assert len(run.bins()) == 87
    for file in run.bins():
        data = file.read_bytes().partition(b"$End=1\n")[2]
        assert len(data) == 8
        assert b"\xaa\xaa" not in data


def test_operations_of_the_newest_release_keep_the_names_of_their_tensors(host: Host) -> None:
    run = host.trace("generation=91")
    names = {path.name for path in run.bins() if path.parents[1].name.endswith("LinearOperation")}
    assert names == {"intensor0_input.bin", "intensor1_weight.bin", "outtensor0_output.bin"}


def test_tiling_lies_beside_the_tensors(host: Host) -> None:
    run = host.trace(ATB_SAVE_TILING="1")
    files = sorted((run.dump / "tiling").rglob("kernel_tilingdata.bin"))
    assert len(files) == 4
    assert all(file.read_bytes() == bytes([7]) * 160 for file in files)


def test_another_device_is_left_out(host: Host) -> None:
    run = host.trace(
        "generation=80",
        "device=1",
        ATB_DEVICE_ID="0",
        ATB_DUMP_TYPE="tensor|op|kernel",
        ATB_SAVE_TILING="1",
    )
    assert sorted(path.name for path in run.dump.iterdir()) == ["ledger"]


BAD_PATHS = {
    "above": "../escape/after/outtensor0.bin",
    "inside": "0_1/0/../../../escape/after/outtensor0.bin",
    "absolute": "/tmp/ait_probe_escape/after/outtensor0.bin",
    "control": "0_1/0/0_O\\np/after/outtensor0.bin",
    "component": f"0_1/0/0_{'x' * 260}/after/outtensor0.bin",
    "total": f"0_1/0/{'/'.join(['y' * 200] * 21)}/after/outtensor0.bin",
    "dot": "0_1/0/./after/outtensor0.bin",
    "double": "0_1/0//after/outtensor0.bin",
}


@pytest.mark.parametrize("path", BAD_PATHS.values(), ids=BAD_PATHS.keys())
def test_a_path_that_leaves_the_dump_is_refused_and_recorded(host: Host, path: str) -> None:
    run = host.script(tensor(path), "before")
    assert run.returncode == 0
    assert run.bins() == []
    assert not Path("/tmp/ait_probe_escape").exists()
    assert not list(host.output.parent.rglob("escape"))
    (line,) = [line for line in run.ledger() if line["kind"] == "op"]
    assert (line["state"], line["lost"]) == ("failed", 1)
    assert "refused" in line["reason"]


def test_a_link_inside_the_dump_is_not_followed(host1: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = host1.output / "ait_dump" / "tensors" / "0_5" / "0"
    folder.mkdir(parents=True)
    (folder / "0_Op").symlink_to(outside)
    run = host1.script(tensor("0_5/0/0_Op/after/outtensor0.bin"), "before")
    assert list(outside.iterdir()) == []
    (line,) = [line for line in run.ledger() if line["kind"] == "op"]
    assert line["state"] == "failed"


def test_a_description_with_a_line_break_is_refused(host1: Host) -> None:
    run = host1.script(call("tensor", 2, 1, "2\\n$End=1", PATH, "hex:003c"), "before")
    assert run.bins() == []
