"""The zip archive around a ``.pth`` file: which records it has and where their bytes lie.

Only what ``torch.save`` writes: records that are stored, not compressed, and a directory at the
very end. For anything else the answer is None and the ordinary reader judges. Python's own zip
reader needs ten times as long, which counts where a dump has a hundred thousand files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

_END = struct.Struct("<4sHHHHIIH")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL_BYTES, _CRC_AT = 30, 16  # a header before a record; the checksum within an entry
_UNKNOWN_32 = 0xFFFFFFFF
_WINDOW = 4096  # a directory and a small pickle fit; small files are read in one go
_MAX_DIRECTORY_BYTES = 64 << 20


class Record(NamedTuple):
    """One record of an archive.

    Attributes:
        start: position of its local header in the file.
        size: of its bytes.
        crc: checksum of its bytes.
        stored: False if it is compressed or encrypted.
        crc_at: position of the checksum in the directory.
    """

    start: int
    size: int
    crc: int
    stored: bool
    crc_at: int


class Archive:
    """An open archive.

    Args:
        pread: reads so many bytes from such an offset.
        size: of the file in bytes.

    Attributes:
        size: the same.
        head, tail: the bytes that it begins and ends with; of a small file all of them.
        tail_start: position of the first byte of the tail.
    """

    def __init__(self, pread: Callable[[int, int], bytes], size: int) -> None:
        self._pread = pread
        self.size = size
        if size <= 4 * _WINDOW:
            self.head = self.tail = pread(size, 0)
            self.tail_start = 0
        else:
            self.head = pread(_WINDOW, 0)
            self.tail_start = size - _WINDOW
            self.tail = pread(_WINDOW, self.tail_start)

    def records(self) -> dict[str, Record] | None:
        """Records by name without the archive's own folder; None if it is not of torch's kind."""
        place = self._directory()
        if place is None:
            return None
        start, size, count = place
        directory = self._read(start, size)
        if len(directory) != size:
            return None
        records: dict[str, Record] = {}
        at = 0
        for _ in range(count):
            if at + _ENTRY.size > size:
                return None
            fields = _ENTRY.unpack_from(directory, at)
            signature, flags, method, crc = fields[0], fields[3], fields[4], fields[7]
            packed, length, name_bytes, extra_bytes, comment_bytes = fields[8:13]
            begin = fields[16]
            name_end = at + _ENTRY.size + name_bytes
            extra = directory[name_end : name_end + extra_bytes]
            if _UNKNOWN_32 in (length, packed, begin):
                wide = _wide_fields(extra, length, packed, begin)
                if wide is None:
                    return None
                length, packed, begin = wide
            folder, _, name = (
                directory[at + _ENTRY.size : name_end].decode("utf-8", "replace").partition("/")
            )
            if signature != b"PK\1\2" or name in records or begin + length > self.size:
                return None
            stored = method == 0 and not flags & 1 and packed == length
            records[name or folder] = Record(begin, length, crc, stored, start + at + _CRC_AT)
            at = name_end + extra_bytes + comment_bytes
        return records

    def data_offset(self, record: Record) -> int | None:
        """Where the bytes of a stored record begin; None if they do not lie within the file."""
        local = self._read(record.start, _LOCAL_BYTES)
        if not record.stored or len(local) < _LOCAL_BYTES or local[:4] != b"PK\3\4":
            return None
        name_bytes, extra_bytes = struct.unpack_from("<HH", local, 26)
        begin: int = record.start + _LOCAL_BYTES + name_bytes + extra_bytes
        return begin if begin + record.size <= self.size else None

    def read(self, record: Record) -> bytes | None:
        """The bytes of a small stored record."""
        begin = self.data_offset(record)
        return None if begin is None else self._read(begin, record.size)

    def _directory(self) -> tuple[int, int, int] | None:
        """Start, size and number of entries of the central directory."""
        if len(self.tail) < _END.size:
            return None
        fields = _END.unpack_from(self.tail, len(self.tail) - _END.size)
        signature, _, _, _, count, size, start, comment = fields
        if signature != b"PK\5\6" or comment:
            return None
        if count == 0xFFFF or _UNKNOWN_32 in (size, start):
            at = len(self.tail) - _END.size - _LOCATOR_64.size
            if at < 0:
                return None
            signature, _, end_64, _ = _LOCATOR_64.unpack_from(self.tail, at)
            block = self._read(end_64, _END_64.size)
            if signature != b"PK\6\7" or len(block) < _END_64.size:
                return None
            wide = _END_64.unpack(block)
            if wide[0] != b"PK\6\6":
                return None
            count, size, start = wide[7], wide[8], wide[9]
        if size > _MAX_DIRECTORY_BYTES or start + size > self.size:
            return None
        return start, size, count

    def _read(self, start: int, size: int) -> bytes:
        if start + size <= len(self.head):
            return self.head[start : start + size]
        if start >= self.tail_start:
            within = start - self.tail_start
            return self.tail[within : within + size]
        if start >= self.size:
            return b""
        return self._pread(size, start)


def _wide_fields(extra: bytes, *narrow: int) -> tuple[int, int, int] | None:
    """64-bit values of those fields that did not fit into 32 bits, in the order of zip64."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wanted = sum(value == _UNKNOWN_32 for value in narrow)
            if size < 8 * wanted or at + 4 + 8 * wanted > len(extra):
                return None
            values = iter(struct.unpack_from(f"<{wanted}Q", extra, at + 4))
            length, packed, begin = (
                next(values) if value == _UNKNOWN_32 else value for value in narrow
            )
            return length, packed, begin
        at += 4 + size
    return None
