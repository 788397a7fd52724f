"""Protocol-buffer wire format, as far as reading needs it.

Works on positions in one buffer, so that a message within a message costs no copy, and a field
that nobody asks for is stepped over. Source: the public encoding description of protocol buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

Buffer = bytes | memoryview | mmap

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5

_MAX_VARINT_BYTES = 10
_MASK = (1 << 64) - 1


def varint(data: Buffer, pos: int, end: int) -> tuple[int, int]:
    """An unsigned number of 64 bits and the position behind it.

    Raises:
        ValueError: it reaches beyond ``end``, or has more than 10 bytes.
    """
    value = shift = 0
    for place in range(pos, min(end, pos + _MAX_VARINT_BYTES)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, place + 1
        shift += 7
    raise ValueError("a number is cut off" if end - pos < _MAX_VARINT_BYTES else "a number is long")


def fields(data: Buffer, pos: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message between two positions, in their order on disk.

    Yields:
        Field number, wire type, and: the value and 0 (numbers), or the first position of the
        content and the one behind it (strings, bytes, messages, packed numbers).

    Raises:
        ValueError: the bytes are not a message.
    """
    while pos < end:
        key = data[pos]
        pos += 1
        if key > 0x7F:
            key, pos = varint(data, pos - 1, end)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"a field has the number {number}")
        if wire == VARINT:
            if pos < end and data[pos] < 0x80:  # most numbers
                yield number, VARINT, data[pos], 0
                pos += 1
                continue
            value, pos = varint(data, pos, end)
            yield number, VARINT, value, 0
        elif wire == BYTES:
            length, pos = varint(data, pos, end)
            stop = pos + length
            if stop > end:
                raise ValueError(f"field {number} is cut off")
            yield number, BYTES, pos, stop
            pos = stop
        elif wire in (FIXED64, FIXED32):
            stop = pos + (8 if wire == FIXED64 else 4)
            if stop > end:
                raise ValueError(f"field {number} is cut off")
            yield number, wire, int.from_bytes(data[pos:stop], "little"), 0
            pos = stop
        else:
            raise ValueError(f"field {number} is of the unknown wire type {wire}")


def packed(data: Buffer, pos: int, end: int) -> Iterator[int]:
    """The numbers of a packed repeated field.

    Raises:
        ValueError: the last one is cut off.
    """
    while pos < end:
        value, pos = varint(data, pos, end)
        yield value


def signed(value: int) -> int:
    """A number of 64 bits as two's complement."""
    return value - (1 << 64) if value >> 63 else value
