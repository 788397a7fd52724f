"""Writes the smallest ELF shared libraries that the reader can be asked about."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

GLOBAL, WEAK, LOCAL = 1, 2, 0
DEFAULT, HIDDEN = 0, 2


@dataclass(frozen=True)
class Symbol:
    name: str
    defined: bool = True
    binding: int = GLOBAL
    visibility: int = DEFAULT


def shared_library(
    symbols: Sequence[Symbol | str],
    *,
    machine: int = 62,
    kind: int = 3,
    needed: Sequence[str] = (),
    symbolic: bool = False,
) -> bytes:
    """ELF64 little-endian: header, .dynstr, .dynsym, .dynamic, section headers."""
    strings = b"\0"

    def add(text: str) -> int:
        nonlocal strings
        offset = len(strings)
        strings += text.encode() + b"\0"
        return offset

    table = bytes(24)
    for symbol in symbols:
        entry = Symbol(symbol) if isinstance(symbol, str) else symbol
        table += struct.pack(
            "<IBBHQQ",
            add(entry.name),
            entry.binding << 4 | 2,
            entry.visibility,
            7 if entry.defined else 0,
            0x1000,
            16,
        )
    dynamic = b"".join(struct.pack("<qQ", 1, add(name)) for name in needed)
    if symbolic:
        dynamic += struct.pack("<qQ", 30, 2)
    dynamic += struct.pack("<qQ", 0, 0)

    at_strings = 64
    at_table = at_strings + len(strings)
    at_dynamic = at_table + len(table)
    at_sections = at_dynamic + len(dynamic)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        kind, machine, 1, 0, 0, at_sections, 0, 64, 56, 0, 64, 4, 0,
    )  # fmt: skip

    def section(kind: int, offset: int, size: int, link: int, entry: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 8, entry)

    sections = (
        bytes(64)
        + section(3, at_strings, len(strings), 0, 0)
        + section(11, at_table, len(table), 1, 24)
        + section(6, at_dynamic, len(dynamic), 1, 16)
    )
    return header + strings + table + dynamic + sections
