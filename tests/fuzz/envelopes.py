"""Containers whose lengths and checksums fit again after a change of what is in them.

Blind changes of a file with a checksum test the checksum only.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence

from mutations import Mutate, Rng, mutate_bytes, mutate_json, mutate_text


def length_prefixed(inner: Mutate, prefix: int = 8) -> Mutate:
    """A header behind its length, then data."""

    def mutate(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
        size = int.from_bytes(data[:prefix], "little")
        if rng.random() < 0.3 or not 0 < size <= len(data) - prefix:
            return mutate_bytes(rng, data, others)
        header = inner(rng, data[prefix : prefix + size], [b"".join(others)[: 1 << 12]])
        return len(header).to_bytes(prefix, "little") + header + data[prefix + size :]

    return mutate


safetensors = length_prefixed(mutate_json)
ge_data = length_prefixed(mutate_bytes)


def npy(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
    """The header of a ``.npy`` file, padded as it must be."""
    if rng.random() < 0.3 or len(data) < 10 or data[6] != 1:
        return mutate_bytes(rng, data, others)
    size = int.from_bytes(data[8:10], "little")
    header = mutate_text(rng, data[10 : 10 + size].rstrip(), [b"{'descr': '<f4'}"]).rstrip(b"\n")
    header = (header + b" " * (-(len(header) + 11) % 64) + b"\n")[:0xFFFF]
    return data[:8] + struct.pack("<H", len(header)) + header + data[10 + size :]


def archive(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
    """A member of a zip file: its name, its content, or that it is there."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as found:
            members = [(each.filename, found.read(each)) for each in found.infolist()]
    except Exception:  # noqa: BLE001  # damaged before
        return mutate_bytes(rng, data, others)
    if rng.random() < 0.3 or not members:
        return mutate_bytes(rng, data, others)
    at = rng.randrange(len(members))
    name, content = members[at]
    match rng.randrange(8):
        case 0:
            del members[at]
        case 1:
            members.insert(at, (name, b"x"))
        case 2:
            members[at] = (mutate_text(rng, name.encode(), [b"../x"]).decode("latin-1"), content)
        case _:
            at = 0 if rng.random() < 0.7 else at  # the pickle or the index comes first
            name, content = members[at]
            change = mutate_text if content[:1] == b"<" else mutate_bytes
            members[at] = (name, change(rng, content, [content]))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members:
            info = zipfile.ZipInfo(name or "x", (1980, 1, 1, 0, 0, 0))
            made.writestr(info, content)
    return out.getvalue()
