"""safetensors files, against the reference implementation and against lies."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats import list_safetensors, read_safetensors


def test_file_of_the_reference_implementation(tmp_path: Path) -> None:
    tensors = {
        "w": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "q": torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn),
        "m": torch.tensor([True, False]),
        "s": torch.tensor(7, dtype=torch.int64),
    }
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", {"format": "pt"})
    found = list_safetensors(tmp_path / "a.safetensors")
    assert found["w"] == TensorDesc(DType.FLOAT32, (2, 3))
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        loaded = read_safetensors(tmp_path / "a.safetensors", name).torch()
        assert loaded.dtype == tensor.dtype
        assert loaded.tolist() == tensor.tolist()


def write(path: Path, table: Any, data: bytes) -> Path:
    header = table if isinstance(table, bytes) else json.dumps(table).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def entry(dtype: str = "F16", shape: Any = (2,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_literal_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"x": entry("BF16")}, b"\x80\x3f\x00\xc0")
    loaded = read_safetensors(path, "x")
    assert loaded.array.dtype == ml_dtypes.bfloat16
    assert loaded.array.astype(np.float32).tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    ("table", "data", "message"),
    [
        ({"x": entry()}, b"abc", "header says 4 bytes of data, the file has 3"),
        ({"x": entry()}, b"abcde", "header says 4 bytes of data, the file has 5"),
        ({"x": entry(shape=[3])}, b"abcd", "takes 6 bytes, the header says 4"),
        ({"x": entry("F7")}, b"abcd", "unknown dtype 'F7'"),
        ({"x": entry(shape=[-2])}, b"abcd", "describes tensor 'x' wrongly"),
        ({"x": entry(shape=[2**64])}, b"abcd", "describes tensor 'x' wrongly"),
        ({"x": entry(shape=[True])}, b"abcd", "describes tensor 'x' wrongly"),
        ({"x": entry(offsets=[0])}, b"abcd", "describes tensor 'x' wrongly"),
        ({"x": entry(offsets=[4, 0])}, b"abcd", "the header says -4"),
        ({"x": entry(), "y": entry()}, b"abcd", "overlap or leave holes"),
        ({"x": entry(offsets=[2, 6])}, b"abcdef", "overlap or leave holes"),
        ({"x": 5}, b"", "describes tensor 'x' wrongly"),
        ([1], b"", "is not a table of tensors"),
        (b"{not json", b"", "is not JSON"),
        (b"[" * 50000, b"", "is not JSON"),
    ],
)
def test_lies_are_told(tmp_path: Path, table: Any, data: bytes, message: str) -> None:
    path = write(tmp_path / "a.safetensors", table, data)
    with pytest.raises(FormatError, match=message):
        list_safetensors(path)


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, b"\xff" * 100])
def test_header_longer_than_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(FormatError, match=r"too short|header says it takes"):
        list_safetensors(tmp_path / "a.safetensors")


def test_unknown_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"x": entry()}, b"abcd")
    with pytest.raises(FormatError, match="holds no tensor called 'y'"):
        read_safetensors(path, "y")


@settings(max_examples=200, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), min_size=1, max_size=3),
    cut=st.integers(0, 80),
)
def test_damage_gives_a_format_error_or_a_table(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]], cut: int
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "damaged.safetensors", {"x": entry()}, b"abcd")
    content = bytearray(path.read_bytes())
    for position, byte in edits:
        if position < len(content):
            content[position] = byte
    path.write_bytes(content[:cut])
    try:
        found = list_safetensors(path)
    except FormatError:
        return
    assert sum(desc.byte_count for desc in found.values()) <= len(content)
