"""Values of ATB tensor files: round trips, references, and damage of any kind."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats import read_header, read_tensor, write_tensor
from ait_llm.formats.layout import nd_to_nz

SIX_BITS = (DType.FLOAT6_E2M3, DType.FLOAT6_E3M2)
STORABLE = [member for member in DType if member.numpy_type is not None and member not in SIX_BITS]
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def values(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Any bit patterns that an array of that type can hold."""
    assert dtype.numpy_type is not None
    rng = np.random.default_rng(seed)
    count = math.prod(shape)
    plain = np.dtype(dtype.numpy_type)
    if dtype is DType.INT4:
        return rng.integers(-8, 8, count, dtype=np.int8).astype(plain).reshape(shape)
    limit = 2 if dtype in (DType.BOOL, DType.UINT1) else 1 << min(dtype.bits, 8)
    codes = rng.integers(0, limit, count * plain.itemsize, dtype=np.uint8)
    return codes.view(plain).reshape(shape)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bin") / "tensor.bin"


@settings(max_examples=150, deadline=None)
@given(dtype=st.sampled_from(STORABLE), shape=shapes, seed=st.integers(0, 999), mmap=st.booleans())
def test_round_trip_keeps_every_bit(
    scratch: Path, dtype: DType, shape: tuple[int, ...], seed: int, mmap: bool
) -> None:
    array = values(dtype, shape, seed)
    write_tensor(scratch, array, TensorDesc(dtype, shape))
    again = read_tensor(scratch, mmap=mmap)
    assert again.dtype == array.dtype
    assert again.shape == shape
    assert again.tobytes() == array.tobytes()
    assert read_header(scratch).length == dtype.byte_count(array.size)


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 103), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 104),
    tail=st.binary(max_size=8),
)
def test_damage_gives_a_format_error_or_a_sound_tensor(
    scratch: Path, edits: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    write_tensor(scratch, np.arange(4, dtype=np.float16).reshape(2, 2), HALF)
    content = bytearray(scratch.read_bytes())
    for position, byte in edits:
        content[position] = byte
    scratch.write_bytes(bytes(content[:cut]) + tail)
    try:
        array = read_tensor(scratch)
    except FormatError:
        return
    header = read_header(scratch)
    assert array.size == header.desc.elements
    assert header.offset + header.length <= scratch.stat().st_size


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(
            [
                "$Object.Count=1",
                "$Object.Length=8",
                "$Object.Length=-1",
                "$Object.data=0,8",
                "$Object.x=8,0",
                "format=2",
                "format=29",
                "dtype=1",
                "dtype=29",
                "dtype=-1",
                "dtype=13",
                "dims=2,2",
                "dims=",
                "dims=0",
                "data=tensor.bin",
                "data=../tensor.bin",
                "data=\0",
                "junk=",
            ]
        ),
        max_size=9,
    ),
    data=st.binary(max_size=16),
)
def test_any_mix_of_lines_gives_a_format_error_or_a_sound_tensor(
    scratch: Path, lines: list[str], data: bytes
) -> None:
    text = "\n".join(["$Version=1.0", *lines, "$End=1"]) + "\n"
    scratch.write_bytes(text.encode() + data)
    try:
        array = read_tensor(scratch)
    except FormatError:
        return
    assert array.size == read_header(scratch).desc.elements


HALF = TensorDesc(DType.FLOAT16, (2, 2))
SAMPLE = np.array([[1, -2], [0.5, np.inf]], dtype=np.float16)


def test_written_bytes_are_those_of_the_official_probe(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_tensor(path, SAMPLE, HALF)
    assert path.read_bytes() == (
        b"$Version=1.0\n$Object.Count=1\n$Object.Length=8\nformat=2\ndtype=1\ndims=2,2\n"
        b"$Object.data=0,8\n$End=1\n\x00\x3c\x00\xc0\x00\x38\x00\x7c"
    )


def test_written_file_replaces_an_older_one_and_has_mode_0640(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"older and longer than the new content " * 10)
    write_tensor(path, SAMPLE, HALF)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [found.name for found in tmp_path.iterdir()] == ["a.bin"]
    assert read_tensor(path).tolist() == SAMPLE.tolist()


def test_description_is_written_without_data(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_tensor(path, None, HALF, {"max": "1", "min": "0"})
    assert path.read_bytes() == (
        b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,2\n"
        b"max=1\nmin=0\n$End=1\n"
    )


@pytest.mark.parametrize(
    ("array", "attributes", "message"),
    [
        (SAMPLE.astype(np.float32), {}, "float32 does not hold float16"),
        (SAMPLE[:1], {}, "2 elements for dims"),
        (SAMPLE, {"a": "x\n$End=1"}, "breaks the header"),
        (SAMPLE, {"$End": "1"}, "breaks the header"),
    ],
)
def test_contradictions_are_not_written(
    tmp_path: Path, array: np.ndarray[Any, Any], attributes: dict[str, str], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        write_tensor(tmp_path / "a.bin", array, HALF, attributes)
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_told_when_writing(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be written: No such file or directory"):
        write_tensor(tmp_path / "absent" / "a.bin", SAMPLE, HALF)


def test_reference_is_followed_within_the_folder(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    write_tensor(tmp_path / "one" / "a.bin", SAMPLE.reshape(4), TensorDesc(DType.FLOAT16, (4,)))
    write_tensor(tmp_path / "two" / "b.bin", None, HALF, {"data": "../one/a.bin"})
    array = read_tensor(tmp_path / "two" / "b.bin", root=tmp_path)
    assert array.tolist() == SAMPLE.tolist()
    with pytest.raises(FormatError, match=r"refers to 'a\.bin', which lies outside"):
        read_tensor(tmp_path / "two" / "b.bin")


def test_chain_of_references_is_followed(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.bin", SAMPLE, HALF)
    write_tensor(tmp_path / "b.bin", None, HALF, {"data": "a.bin"})
    write_tensor(tmp_path / "c.bin", None, HALF, {"data": "b.bin"})
    assert read_tensor(tmp_path / "c.bin").tolist() == SAMPLE.tolist()


@pytest.mark.parametrize("target", ["a.bin", "b.bin", "./a.bin"])
def test_reference_that_leads_back(tmp_path: Path, target: str) -> None:
    write_tensor(tmp_path / "a.bin", None, HALF, {"data": target})
    write_tensor(tmp_path / "b.bin", None, HALF, {"data": "a.bin"})
    with pytest.raises(FormatError, match="leads back to itself"):
        read_tensor(tmp_path / "a.bin")


def test_reference_to_a_missing_file_names_the_referring_one(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.bin", None, HALF, {"data": "gone.bin"})
    with pytest.raises(FormatError, match=r"refers to 'gone\.bin', which cannot be read") as caught:
        read_tensor(tmp_path / "a.bin")
    assert caught.value.path == tmp_path / "a.bin"


def test_reference_to_another_kind_of_tensor(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.bin", SAMPLE.view(np.int16), TensorDesc(DType.INT16, (2, 2)))
    write_tensor(tmp_path / "b.bin", None, HALF, {"data": "a.bin"})
    with pytest.raises(FormatError, match="holds 4 elements of int16, not 4 of float16"):
        read_tensor(tmp_path / "b.bin")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "../secret/a.bin"])
def test_reference_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    dump = tmp_path / "dump"
    (tmp_path / "secret").mkdir()
    dump.mkdir()
    write_tensor(tmp_path / "secret" / "a.bin", SAMPLE, HALF)
    write_tensor(dump / "a.bin", None, HALF, {"data": target})
    with pytest.raises(FormatError, match=r"lies outside of|cannot be read"):
        read_tensor(dump / "a.bin")


def test_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    write_tensor(tmp_path / "secret.bin", SAMPLE, HALF)
    (dump / "a.bin").symlink_to(tmp_path / "secret.bin")
    write_tensor(dump / "b.bin", None, HALF, {"data": "a.bin"})
    for name in ("a.bin", "b.bin"):
        with pytest.raises(FormatError, match="lies outside of"):
            read_tensor(dump / name)


def test_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").symlink_to(tmp_path / "b.bin")
    (tmp_path / "b.bin").symlink_to(tmp_path / "a.bin")
    with pytest.raises(FormatError, match="cannot be read"):
        read_tensor(tmp_path / "a.bin")


def test_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.bin")
    with pytest.raises(FormatError, match="is not a regular file"):
        read_tensor(tmp_path / "a.bin")


@pytest.mark.parametrize("dtype", [DType.STRING, DType.UNDEFINED])
def test_type_without_values_is_named(tmp_path: Path, dtype: DType) -> None:
    content = (
        f"$Version=1.0\n$Object.Count=1\n$Object.Length=2\nformat=2\ndtype={dtype.code}\n"
        "dims=1\n$Object.data=0,2\n$End=1\nab"
    )
    (tmp_path / "a.bin").write_text(content)
    assert read_header(tmp_path / "a.bin").desc.dtype is dtype
    with pytest.raises(FormatError, match=f"holds {dtype.label} elements"):
        read_tensor(tmp_path / "a.bin")


def test_padded_fractal_nz_with_logical_dims_comes_in_storage_dims(tmp_path: Path) -> None:
    matrix = np.arange(60, dtype=np.float16).reshape(3, 20)
    stored = nd_to_nz(matrix, 16)
    desc = TensorDesc(DType.FLOAT16, (3, 20), FORMAT_FRACTAL_NZ)
    write_tensor(tmp_path / "a.bin", stored, desc)
    assert read_tensor(tmp_path / "a.bin").tolist() == stored.tolist()


def test_private_format_of_unknown_padding_is_an_error(tmp_path: Path) -> None:
    desc = TensorDesc(DType.FLOAT16, (3, 20), 4)
    write_tensor(tmp_path / "a.bin", np.zeros(512, dtype=np.float16), desc)
    with pytest.raises(FormatError, match=r"512 elements do not fill dims \[3, 20\] of format fra"):
        read_tensor(tmp_path / "a.bin")


def test_sparse_file_of_four_gigabytes_is_mapped_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.bin"
    size = 2**32 + 2
    lines = (
        f"$Version=1.0\n$Object.Count=1\n$Object.Length={size}\nformat=2\ndtype=1\n"
        f"dims={size // 2}\n$Object.data=0,{size}\n$End=1\n"
    )
    with path.open("wb") as file:
        file.write(lines.encode())
        file.seek(size - 2, os.SEEK_CUR)
        file.write(b"\x00\x3c")
    array = read_tensor(path, mmap=True)
    assert array.shape == (size // 2,)
    assert (array[0], array[-1]) == (0.0, 1.0)


def test_values_read_into_memory_are_owned_and_aligned(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.bin", np.ones(3), TensorDesc(DType.FLOAT64, (3,)))
    array = read_tensor(tmp_path / "a.bin", mmap=False)
    assert array.flags.aligned
    assert array.flags.writeable


@pytest.mark.parametrize("count", [3, 300_000])
def test_values_are_read_only_unless_a_copy_is_asked_for(tmp_path: Path, count: int) -> None:
    write_tensor(tmp_path / "a.bin", np.ones(count), TensorDesc(DType.FLOAT64, (count,)))
    assert not read_tensor(tmp_path / "a.bin").flags.writeable
    assert not read_tensor(tmp_path / "a.bin", mmap=True).flags.writeable


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT32, DType.INT64, DType.FLOAT16])
@pytest.mark.parametrize("padding", [0, 1, 2, 3])
def test_mapped_values_are_right_wherever_they_start(
    tmp_path: Path, dtype: DType, padding: int
) -> None:
    assert dtype.numpy_type is not None
    array = np.arange(5).astype(dtype.numpy_type)
    write_tensor(tmp_path / "a.bin", array, TensorDesc(dtype, (5,)), {"note": "x" * padding})
    mapped = read_tensor(tmp_path / "a.bin", mmap=True)
    assert mapped.astype(np.float64).tolist() == [0, 1, 2, 3, 4]
    assert (mapped + mapped).astype(np.float64).tolist() == [0, 2, 4, 6, 8]
