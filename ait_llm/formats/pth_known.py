"""Files of one tensor that differ from one seen before in the values of that tensor only.

A dump has very many of them. What lies around the values, but for their checksum, is compared with
that of earlier files of the same size; where it is the same, so is all that a reader would find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_archive import Archive, Record

_CRC_IN_HEADER, _CRC_BYTES = 14, 4
_SIZES, _OF_A_SIZE = 512, 8  # frames that are kept: some two megabytes


@dataclass(frozen=True, slots=True)
class _Frame:
    """What lies around the values of one file.

    Attributes:
        pieces: whether they lie in the tail of the archive, first and last position in there, and
            the bytes.
        payload: what the file holds.
    """

    pieces: tuple[tuple[bool, int, int, bytes], ...]
    payload: Payload

    def fits(self, archive: Archive) -> bool:
        for in_tail, start, stop, content in self.pieces:
            if (archive.tail if in_tail else archive.head)[start:stop] != content:
                return False
        return True


_FRAMES: dict[int, list[_Frame]] = {}


def known_payload(path: Path | str, archive: Archive) -> Payload | None:
    """The only tensor of a file, if an earlier one was the same around its values."""
    for frame in _FRAMES.get(archive.size, ()):
        if frame.fits(archive):
            found = frame.payload  # replace() costs three times as much
            return Payload(
                path, found.offset, found.length, found.dtype, found.shape, strides=found.strides
            )
    return None


def remember(archive: Archive, record: Record, others: Sequence[Record], payload: Payload) -> None:
    """Keep what lies around the values of a file.

    Args:
        archive: the file, all of whose tensors are one.
        record: holds the values.
        others: all other records; where they share bytes with it, nothing is kept.
        payload: the tensor.
    """
    begin, tail_start, size = archive.data_offset(record), archive.tail_start, archive.size
    if begin is None:
        return
    end = begin + record.size
    if begin > len(archive.head) or min(end, record.crc_at) < tail_start:
        return  # not all of it was read
    for other in others:
        first = archive.data_offset(other)
        if other.start < end and (first is None or first + other.size > record.start):
            return
    frames = _FRAMES.get(size)
    if frames is None:
        if len(_FRAMES) >= _SIZES:
            return
        frames = _FRAMES[size] = []
    if len(frames) >= _OF_A_SIZE:
        return
    crc = record.start + _CRC_IN_HEADER
    places = (
        (False, 0, crc),
        (False, crc + _CRC_BYTES, begin),
        (True, end - tail_start, record.crc_at - tail_start),
        (True, record.crc_at + _CRC_BYTES - tail_start, size - tail_start),
    )
    pieces = tuple(
        (in_tail, start, stop, (archive.tail if in_tail else archive.head)[start:stop])
        for in_tail, start, stop in places
    )
    frames.append(_Frame(pieces, payload))
