"""The wire decoder, against the protocol-buffer library and against damage."""

import pytest
from ge_dump_files import number, text, varint
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.formats.ge_wire import BYTES, FIXED32, FIXED64, VARINT, fields, packed, signed


def _message_class() -> type:
    """A message with one field of each kind that can come."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sample.proto", syntax="proto3")
    message = file.message_type.add(name="Sample")
    for index, (name, kind) in enumerate(
        [
            ("count", kinds.TYPE_UINT64),
            ("signed", kinds.TYPE_INT64),
            ("label", kinds.TYPE_BYTES),
            ("wide", kinds.TYPE_FIXED64),
            ("narrow", kinds.TYPE_FIXED32),
            ("dims", kinds.TYPE_UINT64),
        ]
    ):
        repeated = kinds.LABEL_REPEATED if name == "dims" else kinds.LABEL_OPTIONAL
        # 2000 needs a key of two bytes
        message.field.add(name=name, number=2000 + index, type=kind, label=repeated)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Sample"))


Sample = _message_class()
_U64 = st.integers(0, 2**64 - 1)


@given(
    count=_U64,
    negative=st.integers(-(2**63), -1),
    label=st.binary(max_size=300),
    wide=_U64,
    narrow=st.integers(1, 2**32 - 1),
    dims=st.lists(_U64, min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_reads_what_the_protobuf_library_wrote(
    count: int, negative: int, label: bytes, wide: int, narrow: int, dims: list[int]
) -> None:
    data = Sample(
        count=count, signed=negative, label=label, wide=wide, narrow=narrow, dims=dims
    ).SerializeToString()
    found = {field: (wire, start, stop) for field, wire, start, stop in fields(data, 0, len(data))}
    assert found.get(2000, (VARINT, 0, 0))[1] == count
    assert signed(found[2001][1]) == negative
    if label:
        wire, start, stop = found[2002]
        assert (wire, data[start:stop]) == (BYTES, label)
    assert found.get(2003, (FIXED64, 0, 0))[:2] == (FIXED64, wide)
    assert found[2004][:2] == (FIXED32, narrow)
    assert list(packed(data, *found[2005][1:])) == dims


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = list(fields(data, 0, len(data)))
    except ValueError:
        return
    assert all(0 <= start <= stop <= len(data) for _, wire, start, stop in found if wire == BYTES)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "a number is cut off"),
        (b"\x08" + b"\xff" * 11, "a number is long"),
        (text(1, "abcd")[:-1], "field 1 is cut off"),
        (b"\x09\x00", "field 1 is cut off"),
        (b"\x0b", "wire type 3"),
        (b"\x00\x00", "number 0"),
        (varint(2**40 << 3) + b"\x00", f"number {2**40}"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(fields(data, 0, len(data)))


def test_number_of_more_than_64_bits_keeps_the_low_ones() -> None:
    data = b"\x08" + b"\xff" * 9 + b"\x7f"
    assert list(fields(data, 0, len(data))) == [(1, VARINT, 2**64 - 1, 0)]


def test_fields_stay_within_their_message() -> None:
    data = number(1, 5) + number(2, 300)
    assert [field for field, *_ in fields(data, 0, 2)] == [1]
    with pytest.raises(ValueError, match="cut off"):
        list(fields(data, 0, len(data) - 1))
