"""A file of many tensors is work for many threads, with progress, and can be stopped."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from ait_llm.compare import Progress, compare

numpy = pytest.importorskip("safetensors.numpy")
COUNT = 400


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    tensors = {f"t{n}": np.full(4, n, np.float32) for n in range(COUNT)}
    paths = tmp_path / "golden.safetensors", tmp_path / "mine.safetensors"
    for path in paths:
        numpy.save_file(tensors, path)
    return paths


def test_tensors_of_one_file_are_several_batches(files: tuple[Path, Path]) -> None:
    seen: list[Progress] = []
    report = compare(*files, jobs=1, on_progress=seen.append)
    assert len(report.comparisons) == COUNT
    assert len(seen) > 2
    assert [each.pairs for each in seen] == sorted(each.pairs for each in seen)
    assert seen[-1].pairs == seen[-1].total_pairs == COUNT


def test_a_stop_in_the_middle_of_a_file_keeps_what_is_done(files: tuple[Path, Path]) -> None:
    stop = threading.Event()
    report = compare(*files, jobs=1, stop=stop, on_progress=lambda _: stop.set())
    assert report.partial
    assert 0 < len(report.comparisons) < COUNT
