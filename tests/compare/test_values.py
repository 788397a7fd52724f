"""Values that are mapped from files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from ait_llm.compare import values
from ait_llm.compare.values import open_file
from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats import write_tensor
from ait_llm.formats.layout import nd_to_nz

LARGE = np.random.default_rng(5).normal(size=(700, 1000)).astype(np.float32)


def test_large_values_are_mapped_and_small_ones_read(tmp_path: Path) -> None:
    np.save(tmp_path / "large.npy", LARGE)
    np.save(tmp_path / "small.npy", LARGE[:3])
    with open_file(tmp_path / "large.npy") as large, open_file(tmp_path / "small.npy") as small:
        assert (large.is_mapped, small.is_mapped) == (True, False)
        np.testing.assert_array_equal(large.array, LARGE)
        np.testing.assert_array_equal(small.array, LARGE[:3])
        status = (tmp_path / "large.npy").stat()
        assert large.stamp == (status.st_size, status.st_mtime_ns)


def test_values_stay_readable_after_their_memory_was_given_back(tmp_path: Path) -> None:
    torch.save(torch.from_numpy(LARGE), tmp_path / "large.pth")
    with open_file(tmp_path / "large.pth") as opened:
        flat = opened.array.reshape(-1)
        for start in range(0, flat.size, 100_000):
            opened.release(flat[start : start + 100_000])
        np.testing.assert_array_equal(opened.array, LARGE)
        opened.release_all()
        np.testing.assert_array_equal(opened.array, LARGE)


def test_private_layouts_come_in_row_major_order(tmp_path: Path) -> None:
    matrix = LARGE[:640, :320].astype(np.float16)
    desc = TensorDesc(DType.FLOAT16, matrix.shape, FORMAT_FRACTAL_NZ)
    for rows in (33, 640):
        part = matrix[:rows]
        write_tensor(
            tmp_path / "nz.bin",
            nd_to_nz(part, 16),
            TensorDesc(desc.dtype, part.shape, desc.format),
        )
        with open_file(tmp_path / "nz.bin") as opened:
            np.testing.assert_array_equal(opened.array, part)


def test_transposed_torch_tensors_are_mapped(tmp_path: Path) -> None:
    torch.save(torch.from_numpy(LARGE).t(), tmp_path / "x.pth")
    with open_file(tmp_path / "x.pth") as opened:
        assert opened.is_mapped
        np.testing.assert_array_equal(opened.array, LARGE.T)


def test_a_file_that_became_shorter_is_noticed_before_it_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", LARGE)
    with open_file(tmp_path / "x.npy") as opened:
        opened.check()
        os.truncate(tmp_path / "x.npy", 5000)
        with pytest.raises(FormatError, match="became shorter"):
            opened.check()


def test_large_tensors_that_must_be_unpacked_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "_UNPACKED_FROM", 1000)
    array = np.arange(4096, dtype=np.int8) % 8
    desc = TensorDesc(DType.INT4, array.shape)
    write_tensor(tmp_path / "x.bin", array.astype(ml_dtypes.int4), desc)
    opened = threading.Event()

    def open_too() -> None:
        with open_file(tmp_path / "x.bin") as other:
            assert other.array.size == 4096
            opened.set()

    thread = threading.Thread(target=open_too)
    with open_file(tmp_path / "x.bin"), open_file(tmp_path / "x.bin") as both:
        np.testing.assert_array_equal(both.array.astype(np.int8), array)
        thread.start()
        assert not opened.wait(0.05)
    assert opened.wait(10)
    thread.join()


@pytest.mark.parametrize("kind", ["npy", "pth"])
def test_memory_does_not_follow_the_size_of_tensors(tmp_path: Path, kind: str) -> None:
    """A quarter of a gigabyte a side, of which a sparse file stores nothing."""
    paths = [tmp_path / f"{side}.{kind}" for side in ("golden", "mine")]
    for path in paths:
        (_sparse_npy if kind == "npy" else _sparse_pth)(path, 1 << 27)
        assert path.stat().st_size > 1 << 28
    program = (
        "import resource, sys; from ait_llm import compare\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "report = compare(*sys.argv[1:], jobs=2)\n"
        "assert report.exit_code() == 0, report.comparisons[0].reason\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)],
        check=True,
        stdout=subprocess.PIPE,
        timeout=120,
    )
    assert int(done.stdout) < 100 * 1024  # KiB


def _sparse_npy(path: Path, count: int) -> None:
    with path.open("wb") as file:
        head = {"descr": "<f2", "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(file, head)
        file.truncate(file.tell() + 2 * count)


def _sparse_pth(path: Path, count: int) -> None:
    with torch.serialization.skip_data():
        torch.save(torch.empty(count, dtype=torch.float16), path)
