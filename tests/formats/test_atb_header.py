"""Headers of ATB tensor files, from literal bytes."""

from pathlib import Path

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats import read_header, read_tensor
from ait_llm.formats.atb_header import MAX_HEADER_BYTES, MAX_HEADER_LINES

WORKED_EXAMPLE = bytes.fromhex(
    "2456657273696f6e3d312e300a244f62"
    "6a6563742e436f756e743d310a244f62"
    "6a6563742e4c656e6774683d380a666f"
    "726d61743d320a64747970653d310a64"
    "696d733d322c320a244f626a6563742e"
    "646174613d302c380a24456e643d310a"
    "003c00c00038007c"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "intensor0.bin"


def header(
    *lines: str, count: int = 1, length: int = 8, dtype: str = "1", dims: str = "2,2"
) -> bytes:
    """A header with the given further lines before $End."""
    first = (
        "$Version=1.0",
        f"$Object.Count={count}",
        f"$Object.Length={length}",
        "format=2",
        f"dtype={dtype}",
        f"dims={dims}",
    )
    return "".join(f"{line}\n" for line in (*first, *lines, "$End=1")).encode()


def reason(file: Path, content: bytes) -> str:
    """Why a file of that content is refused."""
    file.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        read_header(file)
    assert caught.value.path == file
    assert str(file) in str(caught.value)
    return caught.value.reason


def test_files_of_equal_headers_are_judged_by_their_own_size_and_name(tmp_path: Path) -> None:
    sound, short, long = (tmp_path / name for name in ("sound.bin", "short.bin", "long.bin"))
    sound.write_bytes(WORKED_EXAMPLE)
    assert read_header(sound).length == 8
    assert reason(short, WORKED_EXAMPLE[:-1]).startswith("header says 8 bytes")
    assert reason(long, WORKED_EXAMPLE + b"x") == "has 1 bytes more than its header says"
    assert read_header(sound).length == 8


def test_equal_damaged_headers_are_reported_with_the_name_of_each_file(tmp_path: Path) -> None:
    for name in ("first.bin", "second.bin"):
        assert reason(tmp_path / name, header("$Object.data=0,8", dtype="99")).startswith("has an")


def test_worked_example_of_the_official_probe(file: Path) -> None:
    file.write_bytes(WORKED_EXAMPLE)
    assert len(WORKED_EXAMPLE) == 104
    found = read_header(file)
    assert found.desc == TensorDesc(DType.FLOAT16, (2, 2), 2)
    assert (found.offset, found.length) == (96, 8)
    assert found.has_data
    assert found.alias is None
    assert dict(found.attributes) == {}
    assert found.statistics is None
    assert read_tensor(file).tolist() == [[1.0, -2.0], [0.5, float("inf")]]


def test_description_without_data(file: Path) -> None:
    content = header(count=0, length=0)
    assert len(content) == 79
    file.write_bytes(content)
    found = read_header(file)
    assert found.desc.shape == (2, 2)
    assert not found.has_data
    with pytest.raises(FormatError, match="is a description without data"):
        read_tensor(file)


def test_tensor_without_elements_needs_no_bytes(file: Path) -> None:
    file.write_bytes(header("$Object.data=0,0", length=0, dims="0,4"))
    assert read_header(file).has_data
    assert read_tensor(file).shape == (0, 4)


def test_statistics_are_attributes_of_the_header(file: Path) -> None:
    lines = ("max=2.5", "min=-1", "mean=N/A", "l2norm=3.25", "nan=1", "inf=2", "note=x")
    file.write_bytes(header(*lines, count=0, length=0))
    found = read_header(file)
    assert found.statistics is not None
    assert (found.statistics.max, found.statistics.min) == (2.5, -1.0)
    assert found.statistics.mean is None
    assert found.statistics.l2norm == 3.25
    assert (found.statistics.nan, found.statistics.inf) == (1, 2)
    assert found.attributes["note"] == "x"


def test_rank_zero_has_empty_dims(file: Path) -> None:
    file.write_bytes(header("$Object.data=0,4", length=4, dtype="0", dims="") + b"\0\0\x80\x3f")
    assert read_header(file).desc.shape == ()
    assert read_tensor(file).item() == 1.0


def test_unknown_system_fields_are_ignored_as_libmki_does(file: Path) -> None:
    file.write_bytes(header("$Author=x", "$Object.data=0,8") + bytes(8))
    assert read_header(file).length == 8


def test_object_named_data_is_found_among_several(file: Path) -> None:
    content = header("$Object.scale=0,4", "$Object.data=4,8", count=2, length=12)
    file.write_bytes(content + b"sss_" + bytes.fromhex("003c00c00038007c"))
    assert read_tensor(file).tolist() == [[1.0, -2.0], [0.5, float("inf")]]


def test_data_without_a_place_is_all_that_follows(file: Path) -> None:
    file.write_bytes(header() + bytes.fromhex("003c00c00038007c"))
    assert read_tensor(file)[0, 1] == -2.0


@pytest.mark.parametrize("cut", [1, 5, 9, 20, 60, 90, 95])
def test_cut_off_header(file: Path, cut: int) -> None:
    assert "header is cut off, it has no $End line" in reason(file, WORKED_EXAMPLE[:cut])


def test_empty_file(file: Path) -> None:
    assert reason(file, b"") == "is empty"


def test_cut_off_data(file: Path) -> None:
    assert reason(file, WORKED_EXAMPLE[:-3]) == "header says 8 bytes of data, the file has 5"


def test_surplus_data(file: Path) -> None:
    assert reason(file, WORKED_EXAMPLE + b"abc") == "has 3 bytes more than its header says"


def test_record_appended_twice(file: Path) -> None:
    assert "holds a second record behind the first" in reason(file, WORKED_EXAMPLE * 2)


def test_record_appended_twice_behind_much_data(file: Path) -> None:
    size = 2 * MAX_HEADER_BYTES
    record = header(f"$Object.data=0,{size}", length=size, dtype="4", dims=str(size)) + bytes(size)
    assert "holds a second record behind the first" in reason(file, record * 2)


@pytest.mark.parametrize(
    "content",
    [b"\x93NUMPY\x01\x00v\x00{'descr'", b"PK\x03\x04", b"\0" * 200, b"version=1\n", b"$End=1\n"],
)
def test_foreign_file(file: Path, content: bytes) -> None:
    assert "is not an ATB tensor file" in reason(file, content)


def test_unknown_version(file: Path) -> None:
    content = WORKED_EXAMPLE.replace(b"=1.0", b"=2.0")
    assert reason(file, content) == "has header version '2.0', this reads 1.0"


@pytest.mark.parametrize("code", ["5", "99", "-2", "1000000000000000000"])
def test_unknown_dtype_code(file: Path, code: str) -> None:
    content = header("$Object.data=0,8", dtype=code) + bytes(8)
    assert reason(file, content) == f"has an unknown ATB dtype code {code}"


@pytest.mark.parametrize("value", ["", "1.5", "0x1", "1e3", "one", "9" * 400, "٣"])
def test_number_that_is_none(file: Path, value: str) -> None:
    assert "not a number" in reason(file, header("$Object.data=0,8", dtype=value) + bytes(8))


@pytest.mark.parametrize("name", ["format", "dtype", "dims", "$Object.Length", "$Object.Count"])
def test_missing_field(file: Path, name: str) -> None:
    kept = [line for line in header().splitlines(True) if not line.startswith(f"{name}=".encode())]
    assert reason(file, b"".join(kept) + bytes(8)) == f"header has no {name!r} line"


@pytest.mark.parametrize(
    "name", ["format=2", "dims=2,2", "$Object.Length=8", "$Object.data=0,8", "$Version=1.0"]
)
def test_field_given_twice(file: Path, name: str) -> None:
    content = header("$Object.data=0,8", name) + bytes(8)
    assert reason(file, content) == f"header gives {name.partition('=')[0]!r} twice"


@pytest.mark.parametrize("line", ["novalue", "=5"])
def test_line_that_is_not_name_and_value(file: Path, line: str) -> None:
    assert reason(file, header(line) + bytes(8)) == "header line 7 is not name=value"


def test_line_that_is_not_text(file: Path) -> None:
    content = header("note=@@", "$Object.data=0,8").replace(b"@@", b"\xff\xfe") + bytes(8)
    assert reason(file, content) == "header line 7 is not text"


@pytest.mark.parametrize(
    "dims", ["9223372036854775807,9223372036854775807", "4294967296," * 3 + "1"]
)
def test_dims_whose_product_overflows(file: Path, dims: str) -> None:
    content = header(count=0, length=0, dims=dims)
    assert reason(file, content) == f"header gives dims {dims} that no file can hold"


def test_huge_dim_beside_a_zero(file: Path) -> None:
    assert "no file can hold" in reason(file, header(dims="0,9223372036854775807", length=0))


def test_negative_dim(file: Path) -> None:
    assert reason(file, header(dims="2,-2") + bytes(8)) == "header gives the negative dim -2"


def test_too_many_dims(file: Path) -> None:
    content = header(dims=",".join(["1"] * 33), length=2) + bytes(2)
    assert reason(file, content) == "header gives 33 dims, at most 32 fit"


@pytest.mark.parametrize("length", [6, 10])
def test_length_that_contradicts_the_dims(file: Path, length: int) -> None:
    content = header(f"$Object.data=0,{length}", length=length) + bytes(length)
    expected = f"float16 of shape [2,2] takes 8 bytes, the header says {length}"
    assert reason(file, content) == expected


@pytest.mark.parametrize("place", ["4,8", "0,9", "9223372036854775807,9223372036854775807"])
def test_object_that_ends_behind_the_data(file: Path, place: str) -> None:
    assert "ends at byte" in reason(file, header(f"$Object.data={place}") + bytes(8))


def test_object_that_leaves_data_unexplained(file: Path) -> None:
    content = header("$Object.data=0,8", length=12) + bytes(12)
    assert reason(file, content) == "the objects take 8 bytes, the header says 12"


@pytest.mark.parametrize("place", ["8", "-8,16", "0,-8", ""])
def test_object_without_a_sound_place(file: Path, place: str) -> None:
    assert "$Object.data" in reason(file, header(f"$Object.data={place}") + bytes(8))


def test_object_before_the_length(file: Path) -> None:
    content = b"$Version=1.0\n$Object.data=0,8\n$Object.Length=8\n$End=1\n"
    assert reason(file, content) == "header gives '$Object.data' before $Object.Length"


def test_other_number_of_objects_than_announced(file: Path) -> None:
    content = header("$Object.data=0,8", count=2) + bytes(8)
    assert reason(file, content) == "header announces 2 objects and places 1"


def test_data_that_no_object_announces(file: Path) -> None:
    assert (
        reason(file, header(count=0) + bytes(8)) == "header announces no object for 8 bytes of data"
    )


def test_no_object_called_data(file: Path) -> None:
    content = header("$Object.scale=0,8") + bytes(8)
    assert reason(file, content) == "holds no object called 'data', only scale"


def test_length_that_no_file_has(file: Path) -> None:
    content = header(f"$Object.data=0,{10**18}", length=10**18) + bytes(8)
    assert reason(file, content) == f"header says {10**18} bytes of data, the file has 8"


def test_header_without_end_is_not_read_beyond_the_limit(file: Path) -> None:
    content = b"$Version=1.0\n" + b"note" + b"x" * (2 * MAX_HEADER_BYTES)
    assert reason(file, content) == f"header does not end within {MAX_HEADER_BYTES} bytes"


def test_header_of_too_many_lines(file: Path) -> None:
    content = b"$Version=1.0\n" + b"\n" * (MAX_HEADER_LINES + 1) + b"$End=1\n"
    assert reason(file, content) == f"header has more than {MAX_HEADER_LINES} lines"


def test_data_and_reference_to_data(file: Path) -> None:
    content = header("data=other.bin", "$Object.data=0,8") + bytes(8)
    assert reason(file, content) == "both holds data and refers to 'other.bin' for it"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read: No such file or directory"):
        read_header(tmp_path / "absent.bin")


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is not a regular file"):
        read_header(tmp_path)
