"""torch files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.formats import read_torch


def test_single_tensor(tmp_path: Path) -> None:
    torch.save(torch.tensor([1.5, -2.0], dtype=torch.bfloat16), tmp_path / "a.pt")
    found = read_torch(tmp_path / "a.pt")
    assert list(found) == [""]
    assert found[""].dtype is DType.BFLOAT16
    assert found[""].array.astype(np.float32).tolist() == [1.5, -2.0]


def test_containers_are_walked(tmp_path: Path) -> None:
    content = {"model": {"w": torch.ones(2)}, "list": [torch.zeros(1), 3, (torch.ones(1),)]}
    torch.save(content, tmp_path / "a.pt")
    assert list(read_torch(tmp_path / "a.pt")) == ["model.w", "list.0", "list.2.0"]


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code of the file was run')",)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"x": Harmful()}, tmp_path / "a.pt")
    with pytest.raises(FormatError, match="cannot be loaded as tensors only"):
        read_torch(tmp_path / "a.pt")


@pytest.mark.parametrize("keep", [0, 1, 30, 200, -40])
def test_cut_off_file(tmp_path: Path, keep: int) -> None:
    torch.save(torch.ones(4), tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(content[:keep])
    with pytest.raises(FormatError, match="cannot be loaded as tensors only"):
        read_torch(tmp_path / "a.pt")


def test_of_a_cut_off_file_only_the_first_sentence_of_torch_is_told(tmp_path: Path) -> None:
    torch.save(torch.ones(4), tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:100])
    with pytest.raises(FormatError) as caught:
        read_torch(tmp_path / "a.pt")
    assert "miniz" not in str(caught.value)
    assert "failed finding central directory. Save plain tensors" in str(caught.value)


def test_tensor_without_a_counterpart(tmp_path: Path) -> None:
    torch.save(torch.eye(2).to_sparse(), tmp_path / "a.pt")
    with pytest.raises(FormatError, match="has no NumPy counterpart"):
        read_torch(tmp_path / "a.pt")
