"""NumPy files."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.formats import read_npy


@pytest.mark.parametrize("order", ["C", "F"])
def test_array_is_read_in_either_order(tmp_path: Path, order: Any) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", np.asarray(array, order=order))
    loaded = read_npy(tmp_path / "a.npy")
    assert loaded.dtype is DType.FLOAT32
    assert loaded.array.tolist() == array.tolist()


def test_big_endian_file_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2], dtype=">i4"))
    loaded = read_npy(tmp_path / "a.npy")
    assert loaded.dtype is DType.INT32
    assert loaded.array.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3)])
def test_scalars_and_empty_arrays(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.ones(shape, dtype=np.float16))
    assert read_npy(tmp_path / "a.npy").array.shape == shape


def test_bf16_saved_as_raw_values_needs_its_type(tmp_path: Path) -> None:
    array = np.array([1.0, -2.0], dtype=ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", array.view("V2"))
    assert read_npy(tmp_path / "a.npy", DType.BFLOAT16).array.tolist() == array.tolist()
    with pytest.raises(FormatError, match="raw values of 2 bytes without a type"):
        read_npy(tmp_path / "a.npy")


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="pickled Python objects"):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("dtype", ["datetime64[s]", "U3", "float128"])
def test_elements_that_no_tensor_has(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2, dtype=dtype))
    with pytest.raises(FormatError, match="have no counterpart in a dump"):
        read_npy(tmp_path / "a.npy")


def test_header_that_lies_about_the_size_allocates_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3), dtype=np.float32))
    content = (tmp_path / "a.npy").read_bytes()
    lie = content.replace(b"(2, 3), }" + b" " * 9, b"(2, 3000000000), }")
    assert len(lie) == len(content)
    (tmp_path / "a.npy").write_bytes(lie)
    with pytest.raises(FormatError, match="header says 24000000000 bytes of data, the file has 24"):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "header is damaged"),
        ("{'descr': '<f4', 'fortran_order': False}", "header is damaged"),
        ("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "header is damaged"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "header is damaged"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "header is damaged"),
        ("__import__('os')", "header is damaged"),
        ("(" * 5000, "header is damaged"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "not numbers"),
        ("{'descr': '<f5', 'fortran_order': False, 'shape': (2,)}", "unknown type '<f5'"),
    ],
)
def test_damaged_header(tmp_path: Path, header: str, message: str) -> None:
    text = header.encode()
    prefix = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little")
    (tmp_path / "a.npy").write_bytes(prefix + text + bytes(8))
    with pytest.raises(FormatError, match=message):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an npy file"),
        (b"\x93NUMPY", "unknown npy version"),
        (b"\x93NUMPY\x09\x00", "unknown npy version"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "larger than any tensor needs"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr'", "header is cut off"),
    ],
)
def test_cut_off_or_foreign_start(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_npy(tmp_path / "a.npy")


@settings(max_examples=200, deadline=None)
@given(
    cut=st.integers(0, 152),
    edits=st.lists(st.tuples(st.integers(0, 151), st.integers(0, 255)), max_size=3),
)
def test_damage_gives_a_format_error_or_an_array(
    tmp_path_factory: pytest.TempPathFactory, cut: int, edits: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    np.save(path, np.zeros((2, 3), dtype=np.float32))
    content = bytearray(path.read_bytes())
    for position, byte in edits:
        content[position] = byte
    path.write_bytes(content[:cut])
    try:
        loaded = read_npy(path)
    except FormatError:
        return
    assert loaded.array.nbytes <= 24
