"""Files that differ in their values only are recognised, others are read anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ait_llm.core import DType
from ait_llm.formats import pth_known, pth_payload
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_payload import pth_payloads
from ait_llm.formats.pth_writer import pth_template, write_pth

SHAPES = [(3, 4), (40, 100), (200, 300)]  # read in one go, in part, and in two pieces


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    pth_known._FRAMES.clear()
    yield
    pth_known._FRAMES.clear()


def saved(path: Path, tensor: torch.Tensor) -> Path:
    """As torch saves it, with a number of its own in the file, or as captures do."""
    if tensor.is_contiguous():
        flat = tensor.reshape(-1).view(torch.uint8)
        write_pth(path, pth_template(tensor.dtype, tuple(tensor.shape)), memoryview(flat.numpy()))
    else:
        torch.save(tensor, path)
    return path


def located(path: Path) -> Payload:
    payloads = pth_payloads(path)
    assert payloads is not None
    return payloads[""]


def values(found: Payload) -> np.ndarray:
    raw = Path(found.path).read_bytes()[found.offset : found.offset + found.length]
    return np.frombuffer(raw, found.dtype.numpy_type).reshape(found.shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_second_file_is_known_and_has_its_own_values(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = torch.randn(shape), torch.randn(shape)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    located(saved(tmp_path / "a" / "t.pth", first))
    path = saved(tmp_path / "b" / "t.pth", second)
    monkeypatch.delattr(pth_payload, "read_tensor_pickle")  # nobody reads it
    found = located(path)
    assert found.path == path
    assert (values(found) == second.numpy()).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_files_of_one_size_that_hold_something_else_are_not_taken_for_known_ones(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    real = torch.randn(shape)
    others = [
        real.t().contiguous(),
        real.t(),
        real.view(torch.int32),
        real.reshape(-1, shape[1] // 2),
        real.flip(0),
    ]
    for place, tensor in enumerate([real, *others, real]):
        (tmp_path / str(place)).mkdir()
        found = located(saved(tmp_path / str(place) / "t.pth", tensor))
        assert found.shape == tuple(tensor.shape)
        assert found.dtype is DType.of_torch(str(tensor.dtype).removeprefix("torch."))
        if found.strides is None:
            assert (values(found) == tensor.contiguous().numpy()).all()
        else:
            assert found.strides == tensor.stride()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_file_with_a_changed_byte_outside_its_values_is_read_anew(
    shape: tuple[int, ...], share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "t.pth", torch.randn(shape))
    known = located(path)
    content = bytearray(path.read_bytes())
    outside = [*range(known.offset), *range(known.offset + known.length, len(content))]
    at = outside[int(share * len(outside))]
    content[at] ^= 1
    path.write_bytes(content)
    read = []
    monkeypatch.setattr(
        pth_payload.Archive, "records", lambda archive: read.append(archive) and None
    )
    assert pth_payloads(path) is None
    assert read


def test_only_so_many_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pth_known, "_SIZES", 2)
    for size in range(1, 200, 40):
        assert located(saved(tmp_path / f"{size}.pth", torch.ones(size))).shape == (size,)
    assert len(pth_known._FRAMES) == 2
