"""Dump files of the graph engine: recorded arrays, literal bytes, damage."""

import contextlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ge_dump_files import (
    BF16,
    FLOAT,
    FLOAT16,
    FRACTAL_NZ,
    INT8,
    Stored,
    file_bytes,
    number,
    nz,
    of,
    text,
    write_file,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.compare.values import open_file, open_payload
from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.formats import load
from ait_llm.formats.ge_file import GeFile, looks_like_ge, read_ge
from ait_llm.formats.ge_values import ge_payloads, ge_raw, ge_values
from ait_llm.formats.locate import locate

_DATA = Path(__file__).parents[1] / "data" / "ge_dump"
_MANIFEST = json.loads((_DATA / "manifest.json").read_text())

# Neg of (1.5, -2) in fp16.
NEG = bytes.fromhex(
    "3700000000000000 0a03322e30 109099d6b9aff78903"
    "1a10 0802 1002 1a030a0102 3004 3a030a0102"
    "2210 0802 1002 1a030a0102 2804 32030a0102"
    "32034e6567 003e00c0 00be0040"
)


def _read(path: Path, data: bytes) -> GeFile:
    path.write_bytes(data)
    return read_ge(path)


def _values(file: GeFile) -> list[np.ndarray]:
    return [ge_values(file, tensor) for tensor in file.tensors]


@pytest.mark.parametrize("entry", _MANIFEST, ids=lambda entry: entry["file"])
def test_recorded_files_hold_the_expected_arrays(entry: dict) -> None:
    path = _DATA / "samples" / entry["file"]
    file = read_ge(path)
    assert file.description.op_name == entry["op_name"]
    assert file.problem is None
    assert len(file.tensors) == len(entry["tensors"])
    for tensor, described in zip(file.tensors, entry["tensors"], strict=True):
        expected = np.load(_DATA / "expected" / described["expected"])
        found = ge_values(file, tensor)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
        assert list(tensor.shape) == described["original_shape"]
        assert list(tensor.described.shape) == described["stored_shape"]
        assert tensor.described.size == described["size"]
        with open_file(path, tensor.name) as opened:  # what the comparison reads
            assert np.ascontiguousarray(opened.array).tobytes() == expected.tobytes()


def test_literal_bytes(tmp_path: Path) -> None:
    file = _read(tmp_path / "Neg.Neg.1.2.1732533825146000", NEG)
    assert file.description.version == "2.0"
    assert file.description.time == 1732533825146000
    assert file.description.op_name == "Neg"
    assert [tensor.name for tensor in file.tensors] == ["intensor0", "outtensor0"]
    assert [values.tolist() for values in _values(file)] == [[1.5, -2.0], [-1.5, 2.0]]
    assert {tensor.dtype for tensor in file.tensors} == {DType.FLOAT16}


@pytest.mark.parametrize("length", range(len(NEG)))
def test_cut_off_at_every_byte(tmp_path: Path, length: int) -> None:
    path = tmp_path / "Neg.Neg.1.2.1732533825146000"
    if length < 63:  # within the header
        with pytest.raises(FormatError, match="cut off"):
            _read(path, NEG[:length])
        return
    file = _read(path, NEG[:length])
    first, last = file.tensors
    assert f"{len(NEG) - length} bytes are missing" in (file.problem or "")
    if length >= 67:  # the input is whole
        assert ge_values(file, first).tolist() == [1.5, -2.0]
    else:
        with pytest.raises(FormatError, match="intensor0 is cut off"):
            ge_values(file, first)
    with pytest.raises(FormatError, match=f"{max(0, length - 67)} of its 4 bytes"):
        ge_values(file, last)
    assert set(ge_payloads(path)) == ({"intensor0"} if length >= 67 else set())


@given(st.integers(0, len(NEG) - 1), st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_any_damaged_byte_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.damaged.1.2.3"
    with contextlib.suppress(FormatError):  # anything else is a bug
        file = _read(path, NEG[:place] + bytes([byte]) + NEG[place + 1 :])
        for tensor in file.tensors:
            assert ge_values(file, tensor).shape == tensor.shape


_DIMS = st.one_of(st.none(), st.lists(st.integers(-2, 20), max_size=6))


@given(
    shape=st.lists(st.integers(-2, 20), max_size=6),
    logical=_DIMS,
    format=st.sampled_from([0, 1, 2, 3, 4, 16, 28, 29, 32, 50, 77]),
    code=st.integers(0, 45),
    size=st.integers(0, 1 << 12),
)
@settings(max_examples=200, deadline=None)
def test_any_description_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    shape: list[int],
    logical: list[int] | None,
    format: int,
    code: int,
    size: int,
) -> None:
    tensor = Stored(bytes(size), code, shape, format, logical)
    path = tmp_path_factory.getbasetemp() / "described.described.1.2.3"
    file = _read(path, file_bytes([tensor], []))
    with contextlib.suppress(FormatError):
        assert ge_values(file, file.tensors[0]).shape == file.tensors[0].shape


# Code, bytes, and the values that they are.
_TYPES = [
    (1, "0000c03f000000c0", [1.5, -2.0]),
    (2, "003e00c0", [1.5, -2.0]),
    (3, "01ff80", [1, -1, -128]),
    (4, "01ff", [1, 255]),
    (5, "feff0100", [-2, 1]),
    (6, "feff", [65534]),
    (7, "feffffff", [-2]),
    (8, "feffffffffffffff", [-2]),
    (9, "feffffff", [2**32 - 2]),
    (10, "feffffffffffffff", [2**64 - 2]),
    (11, "000102", [False, True, True]),
    (12, "000000000000f8bf", [-1.5]),
    (14, "ff", [-1]),
    (15, "ff", [255]),
    (16, "0000803f000000c0", [1 - 2j]),
    (17, "000000000000f03f00000000000000c0", [1 - 2j]),
    (18, "ff", [-1]),
    (19, "feff", [-2]),
    (20, "feffffff", [-2]),
    (21, "ff", [255]),
    (22, "feff", [65534]),
    (23, "0700000000000000", [7]),
    (27, "c03f00c0807f80ff", [1.5, -2.0, np.inf, -np.inf]),
    (28, "f1", [1, -1]),
    (29, "05", [1, 0, 1, 0, 0, 0, 0, 0]),
    (30, "e4", [0, 1, -2, -1]),
    (31, "e4", [0, 1, 2, 3]),
    (32, "003c00c0", [1 - 2j]),
    (33, "0107080f1018202830384060" + "6e6fef00", None),
    (34, "3c407cfc01", [1.0, 2.0, np.inf, -np.inf, 2.0**-16]),
    (35, "387e01c0", [1.0, 448.0, 2.0**-9, -2.0]),
    (36, "7f8000", [1.0, 2.0, 2.0**-127]),
    (39, "72", [1.0, 6.0]),
]
_HIFLOAT8 = [2.0**-22, 2.0**-16, 1, 1.875, 2, 0.5, 4, 8, 0.25, 0.125, 16, 256]
_HIFLOAT8 += [32768, np.inf, -np.inf, 0]


@pytest.mark.parametrize(("code", "stored", "values"), _TYPES, ids=lambda value: str(value)[:12])
def test_values_of_each_type(
    tmp_path: Path, code: int, stored: str, values: list[complex] | None
) -> None:
    expected = _HIFLOAT8 if values is None else values
    tensor = Stored(bytes.fromhex(stored), code, [len(expected)])
    path = write_file(tmp_path / "Op.op.1.2.3", [tensor], [])
    found = load(path).array
    widest = np.complex128 if found.dtype.kind == "c" else np.float64
    if found.dtype.kind in "iu":
        widest = found.dtype.type
    np.testing.assert_array_equal(found.astype(widest), np.array(expected).astype(widest))


@pytest.mark.parametrize("code", [27, 33, 34, 35, 36])
def test_nan_of_each_type(tmp_path: Path, code: int) -> None:
    stored = {27: "c17f", 33: "80", 34: "7f", 35: "7fff", 36: "ff"}[code]
    count = 2 if code == 35 else 1
    path = write_file(tmp_path / "Op.op.1.2.3", [Stored(bytes.fromhex(stored), code, [count])], [])
    assert np.isnan(load(path).array.astype(np.float32)).all()


@pytest.mark.parametrize("code", [0, 13, 24, 25, 26, 37, 38, 40, 41, 42, 99])
def test_type_without_values_costs_only_its_tensor(tmp_path: Path, code: int) -> None:
    odd = Stored(b"\x01\x02\x03", code, [4])
    path = write_file(tmp_path / "Op.op.1.2.3", [odd, of(np.float32([7]), FLOAT)], [])
    file = read_ge(path)
    with pytest.raises(FormatError, match=r"intensor0 values of type .* cannot be represented"):
        ge_values(file, file["intensor0"])
    assert ge_raw(file, file["intensor0"]).tobytes() == b"\x01\x02\x03"
    assert ge_values(file, file["intensor1"]).tolist() == [7.0]
    assert file.problem is None


def test_large_plain_tensor_is_mapped_without_a_copy(tmp_path: Path) -> None:
    values = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    bf16 = values.astype(ml_dtypes.bfloat16)
    path = write_file(
        tmp_path / "Op.op.1.2.3",
        [of(np.int8([1, 2, 3]), INT8)],
        [of(values, FLOAT), of(bf16, BF16)],
    )
    payloads = locate(path)
    assert payloads is not None
    with open_payload(payloads["outtensor0"]) as opened:
        assert opened.is_mapped
        np.testing.assert_array_equal(opened.array, values)
    with open_payload(payloads["outtensor1"]) as opened:
        assert opened.is_mapped
        assert opened.array.dtype == ml_dtypes.bfloat16
        assert opened.array.tobytes() == bf16.tobytes()
    file = read_ge(path)
    assert not ge_values(file, file["outtensor1"]).flags.writeable  # a view of the file


def test_private_layout_in_logical_dims_for_load_and_compare(tmp_path: Path) -> None:
    matrix = np.arange(60, dtype=np.float16).reshape(3, 20)
    blocks = nz(matrix, 16)
    stored = Stored(blocks.tobytes(), FLOAT16, blocks.shape, FRACTAL_NZ, matrix.shape)
    path = write_file(tmp_path / "Op.op.1.2.3", [stored], [])
    np.testing.assert_array_equal(load(path).array, matrix)
    with open_file(path) as opened:
        np.testing.assert_array_equal(opened.array, matrix)


def test_private_layout_without_logical_dims_says_so(tmp_path: Path) -> None:
    stored = Stored(bytes(1024), FLOAT16, [2, 1, 16, 16], FRACTAL_NZ)
    path = write_file(tmp_path / "Op.op.1.2.3", [stored], [])
    with pytest.raises(FormatError, match="fractal_nz and not the logical dims"):
        load(path)
    assert read_ge(path).tensors[0].shape == (2, 1, 16, 16)


def test_header_larger_than_the_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="header of 1000 bytes is cut off"):
        _read(tmp_path / "a", (1000).to_bytes(8, "little") + NEG[8:])


def test_header_of_many_pages(tmp_path: Path) -> None:
    scale = np.float32([3])
    for size in (5000, 2 << 20):  # read in two pieces; mapped
        data = file_bytes([of(scale, FLOAT)], [], attributes=[("note", "x" * size)])
        file = _read(tmp_path / f"{size}", data)
        assert len(file.description.attributes["note"]) == size
        assert _values(file)[0].tolist() == [3.0]


def test_other_product_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="another product line"):
        _read(tmp_path / "a", bytes(8) + b"\x5a" * 4 + bytes(100))


def test_unknown_fields_and_unpacked_dims(tmp_path: Path) -> None:
    shape = number(1, 2) + number(1, 3)  # one field per dim
    tensor = number(1, FLOAT) + text(3, shape) + number(5, 24) + number(60, 7) + text(61, b"new")
    values = np.arange(6, dtype=np.float32)
    header = text(4, tensor) + number(99, 1) + text(98, b"later") + text(6, "op")
    data = len(header).to_bytes(8, "little") + header + values.tobytes()
    assert _values(_read(tmp_path / "a", data))[0].tolist() == values.reshape(2, 3).tolist()


def test_empty_scalar_and_padded_tensors(tmp_path: Path) -> None:
    empty = Stored(b"", FLOAT, [0, 4])
    scalar = Stored(np.int32([7]).tobytes(), 7, [])
    padded = Stored(np.float16([1, 2, 3]).tobytes() + b"\xff" * 26, FLOAT16, [3])
    file = _read(tmp_path / "a", file_bytes([empty, scalar, padded], []))
    shapes = [values.shape for values in _values(file)]
    assert shapes == [(0, 4), (), (3,)]
    assert [values.tolist() for values in _values(file)[1:]] == [7, [1.0, 2.0, 3.0]]


def test_size_below_what_the_dims_need(tmp_path: Path) -> None:
    short = Stored(bytes(6), FLOAT16, [5])
    file = _read(tmp_path / "a", file_bytes([short, of(np.float16([9]), FLOAT16)], []))
    with pytest.raises(FormatError, match=r"dims \[5\] need 10 bytes, it has 6"):
        ge_values(file, file.tensors[0])
    assert ge_values(file, file.tensors[1]).tolist() == [9.0]


def test_unknown_dims_say_so(tmp_path: Path) -> None:
    file = _read(tmp_path / "a", file_bytes([Stored(bytes(8), FLOAT, [-1, 2])], []))
    assert file.tensors[0].shape == (-1, 2)
    with pytest.raises(FormatError, match=r"unknown dims \[-1, 2\]"):
        ge_values(file, file.tensors[0])


def test_tensor_without_an_address_has_no_bytes(tmp_path: Path) -> None:
    absent = Stored(b"", FLOAT, [2], size=8)
    present = Stored(np.float32([5, 6]).tobytes(), FLOAT, [2], address=0x1000)
    file = _read(tmp_path / "a", file_bytes([absent], [present]))
    with pytest.raises(FormatError, match="no address on the device"):
        ge_values(file, file["intensor0"])
    assert ge_values(file, file["outtensor0"]).tolist() == [5.0, 6.0]
    assert file.problem is None


def test_tensor_without_an_address_whose_bytes_are_there(tmp_path: Path) -> None:
    first = Stored(np.float32([1, 2]).tobytes(), FLOAT, [2])
    second = Stored(np.float32([5, 6]).tobytes(), FLOAT, [2], address=0x1000)
    file = _read(tmp_path / "a", file_bytes([first], [second]))
    assert [values.tolist() for values in _values(file)] == [[1.0, 2.0], [5.0, 6.0]]


def test_values_within_the_header(tmp_path: Path) -> None:
    data = np.float32([1, 2]).tobytes()
    tensor = number(1, FLOAT) + text(3, text(1, b"\x02")) + text(4, data) + number(5, 8)
    header = text(4, tensor)
    file = _read(tmp_path / "a", len(header).to_bytes(8, "little") + header)
    assert _values(file)[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("data", "is_ge"),
    [
        (NEG, True),
        (NEG[:40] + bytes(31), True),  # damaged behind its first fields
        (bytes([0x32 - 10]) + bytes(7) + NEG[22:], False),
        (bytes(8) + NEG[8:], False),
        (b"some text, longer than a number", False),
        (b"", False),
    ],
    ids=["whole", "damaged", "wrong length", "no header", "text", "empty"],
)
def test_recognised_by_its_first_bytes(tmp_path: Path, data: bytes, is_ge: bool) -> None:
    (tmp_path / "a.1").write_bytes(data)
    assert looks_like_ge(tmp_path / "a.1") is is_ge


def test_file_without_version_and_time(tmp_path: Path) -> None:
    header = text(4, number(1, FLOAT) + text(3, text(1, b"\x01")) + number(5, 4))
    path = tmp_path / "Op.op.1.2.3"
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.float32([7]).tobytes())
    assert load(path).array.tolist() == [7.0]


def test_origin_before_fusion(tmp_path: Path) -> None:
    output = of(np.float32([1]), FLOAT, origin=("Cast_41", 1))
    file = _read(tmp_path / "a", file_bytes([], [output]))
    original = file.tensors[0].described.original
    assert original is not None
    assert (original.name, original.output) == ("Cast_41", 1)


@pytest.mark.parametrize(
    ("name", "reason"), [(None, "holds 2 tensors, name one of"), ("x", "no tensor called 'x'")]
)
def test_file_of_several_tensors_wants_a_name(
    tmp_path: Path, name: str | None, reason: str
) -> None:
    path = tmp_path / "Neg.Neg.1.2.1732533825146000"
    path.write_bytes(NEG)
    assert looks_like_ge(path)
    assert load(path, "outtensor0").array.tolist() == [-1.5, 2.0]
    with pytest.raises(FormatError, match=reason):
        load(path, name)
