"""The front door for tensor files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import FormatError, MissingDependencyError
from ait_llm.formats import load, write_tensor
from ait_llm.formats.layout import nd_to_nz

VALUES = np.array([[1, -2], [0.5, 4]], dtype=np.float16)


def write(path: Path) -> Path:
    if path.suffix == ".bin":
        write_tensor(path, VALUES, TensorDesc(DType.FLOAT16, (2, 2)))
    elif path.suffix == ".npy":
        np.save(path, VALUES)
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file({"x": VALUES}, path)
    else:
        torch.save(torch.from_numpy(VALUES), path)
    return path


@pytest.mark.parametrize("suffix", [".bin", ".npy", ".pt", ".pth", ".safetensors", ".NPY"])
def test_every_format_gives_the_same_values(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix.lower()}").rename(tmp_path / f"b{suffix}")
    loaded = load(path)
    assert loaded.dtype is DType.FLOAT16
    assert loaded.array.tolist() == VALUES.tolist()


def test_atb_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin").rename(tmp_path / "a.dat")
    assert load(path).array.tolist() == VALUES.tolist()


def test_private_format_is_kept(tmp_path: Path) -> None:
    desc = TensorDesc(DType.FLOAT16, (1, 16, 16), FORMAT_FRACTAL_NZ)
    write_tensor(tmp_path / "a.bin", nd_to_nz(VALUES, 16), desc)
    assert load(tmp_path / "a.bin").format == FORMAT_FRACTAL_NZ


def test_one_of_several_tensors_is_chosen_by_name(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"x": VALUES, "y": VALUES + 1}, tmp_path / "a.safetensors")
    torch.save({"x": torch.zeros(1), "y": torch.ones(1)}, tmp_path / "a.pt")
    assert load(tmp_path / "a.safetensors", "y").array[0, 0] == 2
    assert load(tmp_path / "a.pt", "y").array.tolist() == [1]
    for name in ("a.pt", "a.safetensors"):
        with pytest.raises(FormatError, match="holds 2 tensors, name one of: x, y"):
            load(tmp_path / name)
        with pytest.raises(FormatError, match="holds no tensor called 'z', only: x, y"):
            load(tmp_path / name, "z")


def test_name_for_a_file_of_one_tensor(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds one tensor, not one called 'x'"):
        load(write(tmp_path / "a.npy"), "x")


def test_unknown_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(FormatError, match="is not one of the known tensor files"):
        load(tmp_path / "a.txt")


def test_missing_torch_is_told_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.npy")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ait-llm\[torch\]'"):
        load(path).torch()


def test_reading_without_torch_does_not_import_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin")
    program = (
        "import sys; from ait_llm.formats import load; "
        f"load({str(path)!r}); print('torch' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "False\n"
