"""Files of arrays are whole, or not there."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

from ait_llm.dump.fx.npy_files import write_array


def _limited(path: str, limit: int, hollow: bool) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        write_array(path, np.ones(1000), hollow=hollow)
    except OSError:
        return 1
    return 0


@pytest.mark.parametrize("hollow", [False, True])
@pytest.mark.parametrize("limit", [0, 64, 4096])
def test_an_array_that_does_not_fit_leaves_no_file(
    tmp_path: Path, limit: int, hollow: bool
) -> None:
    path = tmp_path / "a.npy"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_limited, (str(path), limit, hollow)) == 1
    assert not path.exists()


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        write_array(str(path), np.ones(3))
    assert path.read_bytes() == b"mine"


def test_an_array_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    assert write_array(str(path), np.arange(6.0).reshape(2, 3)) == 48
    assert np.load(path).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
