"""All tensors of a dump in one file, read back by the formats' own packages."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from compare_dumps import AtbPair
from dump_builder import DumpBuilder
from safetensors import safe_open

from ait_llm.cli.main import ait
from ait_llm.dumps import open_dump
from ait_llm.export import export_tensors
from ait_llm.formats.safetensors_file import index_safetensors

ARRAYS = {
    "outtensor0": np.array([[1.5, -2.0, 3.25], [0.0, np.inf, 4.0]], np.float16),
    "outtensor1": np.array([1.0, 2.5, -3.0, 0.125], ml_dtypes.bfloat16),
    "outtensor2": np.array([[0.5], [448.0]], ml_dtypes.float8_e4m3fn),
    "outtensor3": np.array([2**40, -1], np.int64),
    "outtensor4": np.array(True),
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """An operation of two steps, with an output of each of several types."""
    pair = AtbPair(tmp_path)
    for name, array in ARRAYS.items():
        pair.add("0_LinearOperation", None, array, name=name)
    pair.add("0_LinearOperation", None, ARRAYS["outtensor0"] * 2, step=1)
    return pair.mine


def export(*words: str | Path) -> Result:
    return CliRunner().invoke(ait, ["llm", "export", *map(str, words)])


def test_safetensors_keep_names_types_and_bits(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.safetensors"
    said = export(dump, "--to", "safetensors", "-o", file)
    assert said.exit_code == 0, said.output
    with safe_open(file, "np") as opened:
        assert set(opened.keys()) == {
            *(f"step0/LinearOperation_0/{name}" for name in ARRAYS),
            "step1/LinearOperation_0/outtensor0",
        }
        types = {}
        for name, array in ARRAYS.items():
            part = opened.get_slice(f"step0/LinearOperation_0/{name}")
            types[name] = part.get_dtype()
            assert tuple(part.get_shape()) == array.shape
        assert types == {
            "outtensor0": "F16",
            "outtensor1": "BF16",
            "outtensor2": "F8_E4M3",
            "outtensor3": "I64",
            "outtensor4": "BOOL",
        }
        again = opened.get_tensor("step1/LinearOperation_0/outtensor0")
        np.testing.assert_array_equal(again, ARRAYS["outtensor0"] * 2)
    # The bytes of all are those of the arrays, types that NumPy lacks included.
    content = file.read_bytes()
    for name, entry in index_safetensors(file).items():
        step, _, leaf = name.split("/")
        if step == "step0":
            stored = content[entry.begin : entry.begin + entry.length]
            assert stored == ARRAYS[leaf].tobytes()


def test_safetensors_say_what_each_tensor_is(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.safetensors"
    export(dump, "--to", "safetensors", "-o", file)
    with safe_open(file, "np") as opened:
        about = json.loads(opened.metadata()["tensors"])
    assert about["step1/LinearOperation_0/outtensor0"] == {
        "operation": "LinearOperation_0",
        "type": "LinearOperation",
        "id": "0",
        "step": 1,
        "call": 0,
        "device": 0,
        "pid": 4242,
        "role": "out",
        "index": 0,
        "phase": "after",
        "dtype": "float16",
    }


def test_npz_widens_what_numpy_lacks_and_says_so(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.npz"
    said = export(dump, "--to", "npz", "-o", file)
    assert said.exit_code == 0, said.output
    assert "widened step0/LinearOperation_0/outtensor1: bf16 as float" in said.output
    with np.load(file, allow_pickle=False) as found:
        for name, array in ARRAYS.items():
            read = found[f"step0/LinearOperation_0/{name}"]
            np.testing.assert_array_equal(read, array.astype(read.dtype))
            wide = name in ("outtensor1", "outtensor2")
            assert read.dtype == (np.float32 if wide else array.dtype)
        about = json.loads(json.loads(str(found["__metadata__"]))["tensors"])
    assert about["step0/LinearOperation_0/outtensor1"]["dtype"] == "bf16"


def test_processes_have_names_of_their_own(tmp_path: Path) -> None:
    builder = DumpBuilder(tmp_path / "ait_dump")
    for process, value in (("0_10", 1.0), ("1_11", 2.0)):
        builder.operation("0_LinearOperation", process=process, value=value)
    file = tmp_path / "all.npz"
    assert export(tmp_path, "--to", "npz", "-o", file).exit_code == 0
    with np.load(file) as found:
        names = [f"device{device}_1{device}/step0/LinearOperation_0" for device in (0, 1)]
        assert [float(found[f"{name}/outtensor0"][0, 0]) for name in names] == [1.0, 2.0]


def test_a_tensor_without_values_is_missing_and_others_are_written(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    pair.add("0_LinearOperation", None, ARRAYS["outtensor0"])
    pair.add("1_LinearOperation", None, ARRAYS["outtensor0"], data=(True, False))
    file = tmp_path / "all.safetensors"
    said = export(pair.mine, "--to", "safetensors", "-o", file)
    assert said.exit_code == 3
    assert "INCOMPLETE: 1 tensor in" in said.output
    assert "missing step0/LinearOperation_1/outtensor0: " in said.output
    with safe_open(file, "np") as opened:
        assert list(opened.keys()) == ["step0/LinearOperation_0/outtensor0"]
    allowed = export(pair.mine, "--to", "safetensors", "-o", file, "--overwrite", "--allow-skip")
    assert allowed.exit_code == 0


@pytest.mark.parametrize("format_name", ["safetensors", "npz"])
def test_one_tensor_at_a_time_is_in_memory(format_name: str, tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    one = np.zeros(1 << 20, np.float32)  # 4 MiB
    for number in range(12):
        pair.add(f"{number}_LinearOperation", None, one)
    dump = open_dump(pair.mine)
    tracemalloc.start()
    try:
        result = export_tensors(dump, tmp_path / "all", format_name)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.tensors == 12
    assert most < 4 * one.nbytes, f"{most / 2**20:.1f} MiB for tensors of 4 MiB"


def test_a_file_that_is_there_is_kept(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.npz"
    file.write_text("mine")
    said = export(dump, "--to", "npz", "-o", file)
    assert said.exit_code == 2
    assert "--overwrite" in said.output
    assert file.read_text() == "mine"


def test_a_type_that_safetensors_lack_is_told_as_missing(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    pair.add("0_LinearOperation", None, np.array([1 + 2j]))
    said = export(pair.mine, "--to", "safetensors", "-o", tmp_path / "w.safetensors")
    assert said.exit_code == 3
    assert "safetensors has no type for complex128" in said.output
    words = [pair.mine / "tensors", "--to", "safetensors", "-o", tmp_path / "converted"]
    converted = CliRunner().invoke(ait, ["llm", "convert", *map(str, words)])
    assert converted.exit_code == 3  # it was a fault of ait
    assert "safetensors has no type for complex128" in converted.output


def test_a_file_is_written_here_and_a_url_is_refused_in_one_sentence(dump: Path) -> None:
    said = export(dump, "--to", "npz", "-o", "memory://bucket/tensors.npz")
    assert said.exit_code == 2
    assert "memory://bucket/tensors.npz: needs a local path, not a URL" in said.output


def test_a_folder_that_cannot_be_made_is_told_in_one_sentence(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    said = export(dump, "--to", "npz", "-o", tmp_path / "file" / "all.npz")
    assert said.exit_code == 2
    assert "choose a folder with --output" in said.output
