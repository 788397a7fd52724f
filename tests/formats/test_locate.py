"""Where tensors lie in files, against what the ordinary readers load."""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from torch import nn

from ait_llm.compare.values import open_payload
from ait_llm.errors import FormatError
from ait_llm.formats import load, read_torch
from ait_llm.formats.locate import locate
from ait_llm.formats.pth_pickle import UnexpectedPickleError, read_tensor_pickle

CONTENTS: list[Any] = [
    torch.arange(24.0).reshape(2, 3, 4),
    torch.arange(24).reshape(4, 6).t(),
    torch.arange(100, dtype=torch.int16)[10:50:3],
    torch.arange(24.0).reshape(4, 6)[:, 1:3],
    torch.ones(3).expand(4, 3),
    torch.tensor(2.5, dtype=torch.float64),
    torch.zeros(0, 5),
    torch.tensor([True, False]),
    torch.ones(3, dtype=torch.bfloat16),
    torch.ones(3).to(torch.float8_e5m2),
    torch.ones(3, dtype=torch.uint16),
    torch.ones(2, dtype=torch.complex64),
    nn.Parameter(torch.ones(2)),
    {"a": torch.ones(2), "b": [torch.zeros(1), (torch.ones(1), 5)], "c": "text", 3: None},
    OrderedDict(weight=torch.ones(2, 2), bias=torch.zeros(2)),
    nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict(),
    [1.5, True, -3, 10**12, torch.Size([1, 2])],
]


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_torch_files_are_located_as_torch_loads_them(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "x.pth")
    payloads = locate(tmp_path / "x.pth")
    expected = read_torch(tmp_path / "x.pth")
    assert payloads is not None
    assert list(payloads) == list(expected)
    for name, payload in payloads.items():
        assert payload.dtype is expected[name].dtype
        with open_payload(payload) as values:
            np.testing.assert_array_equal(values.array, expected[name].array)
            assert values.array.dtype == expected[name].array.dtype


def test_shared_storage_is_read_at_its_offset(tmp_path: Path) -> None:
    storage = torch.arange(10.0)
    torch.save({"head": storage[:4], "tail": storage[6:]}, tmp_path / "x.pth")
    payloads = locate(tmp_path / "x.pth")
    assert payloads is not None
    with open_payload(payloads["tail"]) as values:
        assert values.array.tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize(
    "content",
    [
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(3).to_sparse(),
        {"m": nn.Linear(1, 1)},
    ],
    ids=["conjugated", "sparse", "module"],
)
def test_what_is_more_than_plain_tensors_is_left_to_torch(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "x.pth")
    assert locate(tmp_path / "x.pth") is None


def test_compressed_archives_and_old_files_are_left_to_torch(tmp_path: Path) -> None:
    torch.save(torch.ones(3), tmp_path / "x.pth")
    with (
        zipfile.ZipFile(tmp_path / "x.pth") as source,
        zipfile.ZipFile(tmp_path / "y.pth", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert locate(tmp_path / "y.pth") is None
    torch.save(torch.ones(3), tmp_path / "z.pth", _use_new_zipfile_serialization=False)
    assert locate(tmp_path / "z.pth") is None


def test_numpy_and_safetensors_files_are_located(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.save(tmp_path / "c.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    save_file({"a": array[0], "b": array[1]}, tmp_path / "x.safetensors")
    for name in ("c.npy", "f.npy", "x.safetensors"):
        payloads = locate(tmp_path / name)
        assert payloads is not None
        for key, payload in payloads.items():
            with open_payload(payload) as values:
                expected = load(tmp_path / name, key or None).array
                np.testing.assert_array_equal(values.array, expected)


def test_what_must_be_converted_on_reading_is_not_located(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3, dtype=">f4"))
    assert locate(tmp_path / "x.npy") is None


def test_a_numpy_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    with pytest.raises(FormatError, match="the file has"):
        locate(tmp_path / "x.npy")


def damaged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.pth").write_bytes(data)
    payloads = locate(tmp_path / "x.pth")  # an answer or None, never another exception
    for payload in (payloads or {}).values():
        assert payload.offset + payload.length <= len(data)


@settings(max_examples=300)
@given(place=st.integers(0, 1500), byte=st.integers(0, 255), cut=st.integers(0, 1500))
def test_damaged_archives_are_answered_or_left_alone(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int
) -> None:
    data = bytearray(_archive())
    data[place % len(data)] = byte
    damaged(tmp_path_factory.getbasetemp(), bytes(data))
    damaged(tmp_path_factory.getbasetemp(), bytes(data[:cut]))


def _archive() -> bytes:
    if not _ARCHIVE:
        import io

        buffer = io.BytesIO()
        torch.save({"a": torch.arange(6.0).reshape(2, 3).t()}, buffer)
        _ARCHIVE.append(buffer.getvalue())
    return _ARCHIVE[0]


_ARCHIVE: list[bytes] = []


@pytest.mark.parametrize(
    "pickle",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02.",
        b"cos\nsystem\n(X\x04\x00\x00\x00echotR.",
        b"cbuiltins\neval\n)R.",
        b"\x80\x02Nr\xff\xff\xff\xff0.",
        b"\x80\x02]q\x00h\x00a(",
        b"\x80\x02}(]K\x01u.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x04\x8a\xff.",
        b"\x80\x02(((((t.",
    ],
)
def test_pickles_of_anything_else_are_refused(pickle: bytes) -> None:
    with pytest.raises(UnexpectedPickleError):
        read_tensor_pickle(pickle)


def test_values_that_contain_each_other_without_end_are_refused(tmp_path: Path) -> None:
    level: list[Any] = [torch.ones(1)]
    for _ in range(30):
        level = [level, level]
    torch.save(level, tmp_path / "x.pth")
    assert locate(tmp_path / "x.pth") is None
