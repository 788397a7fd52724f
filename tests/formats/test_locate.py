"""Finding tensors in a file that holds many costs one reading of its table of contents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ait_llm.errors import FormatError
from ait_llm.formats import locate as module
from ait_llm.formats import safetensors_file
from ait_llm.formats.locate import locate

numpy = pytest.importorskip("safetensors.numpy")


def test_the_table_of_contents_is_read_once_for_all_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.safetensors"
    numpy.save_file({f"t{n}": np.zeros(2, np.float32) for n in range(5)}, path)
    module._of_many.cache_clear()
    reads = []
    real = safetensors_file.safetensors_payloads
    monkeypatch.setattr(
        safetensors_file, "safetensors_payloads", lambda path: reads.append(path) or real(path)
    )
    for _ in range(5):
        found = locate(path)
        assert found is not None
        assert len(found) == 5
    assert reads == [path]


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    numpy.save_file({"a": np.zeros(2, np.float32)}, path)
    assert list(locate(path) or ()) == ["a"]
    numpy.save_file({"b": np.zeros(3, np.float32)}, path)
    assert list(locate(path) or ()) == ["b"]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        locate(tmp_path / "absent.safetensors")
