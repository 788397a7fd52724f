"""Reads what a shared library exports, without ``nm`` and without trusting the file.

Only what the probe needs is understood: 64-bit little-endian ELF, its ``.dynsym`` with the string
table beside it, and the ``.dynamic`` entries that decide whether a preloaded library can step in.
Layout: System V ABI, chapters 4 and 5 ("ELF Header", "Symbol Table", "Dynamic Section").
"""

from __future__ import annotations

import os
import platform
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from ait_llm.errors import FormatError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")

_ET_DYN = 3
_SHT_DYNAMIC, _SHT_NOTE, _SHT_DYNSYM = 6, 7, 11
_NT_GNU_BUILD_ID = 3
_STB_GLOBAL, _STB_WEAK = 1, 2
_STV_DEFAULT, _STV_PROTECTED = 0, 3
_DT_NULL, _DT_NEEDED, _DT_SYMBOLIC, _DT_FLAGS = 0, 1, 16, 30
_DF_SYMBOLIC = 2

# libatb.so has some 30 000 dynamic symbols with 4 MB of names; the limits leave room for twenty
# times that and keep a lying header from making us read gigabytes.
_MAX_SECTIONS = 65_535
_MAX_TABLE_BYTES = 96 * 1024 * 1024

MACHINES = {"x86_64": 62, "aarch64": 183, "arm64": 183, "riscv64": 243, "loongarch64": 258}
_MACHINE_NAMES = {62: "x86_64", 183: "aarch64", 243: "riscv64", 258: "loongarch64"}


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """What the dynamic linker would see of one library.

    Attributes:
        machine: ELF machine code (62 is x86-64, 183 is aarch64).
        exported: names that the library defines and that others may bind to.
        needed: libraries it asks the dynamic linker for.
        binds_locally: linked with ``-Bsymbolic``: its own calls cannot be interposed.
    """

    path: Path
    machine: int
    exported: frozenset[str]
    needed: tuple[str, ...]
    binds_locally: bool

    @property
    def machine_name(self) -> str:
        """The architecture as ``uname -m`` prints it."""
        return _MACHINE_NAMES.get(self.machine, f"ELF machine {self.machine}")

    @property
    def runs_here(self) -> bool:
        """True if this machine's dynamic linker would accept the architecture."""
        return self.machine == MACHINES.get(platform.machine())


@dataclass(frozen=True, slots=True)
class _Section:
    name: int
    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


def read_shared_library(path: Path) -> SharedLibrary:
    """Read the dynamic symbols of ``path``.

    Raises:
        FormatError: not a readable regular file, or not a well-formed 64-bit little-endian ELF
            shared library with a dynamic symbol table.
    """
    with _opened(path) as (file, size):
        return _parse(_Image(path, file, size))


def read_build(path: Path) -> tuple[str, str]:
    """The GNU build id as hexadecimal digits, and what the first compiler says of itself.

    Each is empty where the library does not carry it.

    Raises:
        FormatError: as :func:`read_shared_library`, symbols apart.
    """
    with _opened(path) as (file, size):
        image = _Image(path, file, size)
        comment = image.section(".comment").partition(b"\0")[0].decode("utf-8", "replace")
        notes = (image.read(each.offset, each.size, "note") for each in image.of(_SHT_NOTE))
        return next(filter(None, map(_build_id, notes)), ""), comment


def _build_id(notes: bytes) -> str:
    """The id among the notes of one section: name, description and kind, padded to words."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_size + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[start : start + min(size, 64)].hex()
        at = start + (size + 3) // 4 * 4
    return ""


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    try:
        # O_NONBLOCK: a named pipe must be refused below, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError(path, "is not a regular file")
            yield file, status.st_size
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror})") from error


class _Image:
    """The sections of a library that is open."""

    def __init__(self, path: Path, file: BufferedReader, file_size: int) -> None:
        self.path, self.file, self.file_size = path, file, file_size
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:4] != b"\x7fELF":
            raise FormatError(path, "is not an ELF file")
        if header[4] != 2 or header[5] != 1:
            raise FormatError(path, "is not a 64-bit little-endian ELF file")
        fields = _HEADER.unpack(header)
        kind, self.machine, section_offset = fields[1], fields[2], fields[6]
        section_size, section_count, self.names = fields[11], fields[12], fields[13]
        if kind != _ET_DYN:
            raise FormatError(path, "is an ELF file but not a shared library")
        if section_count == 0 or section_size != _SECTION.size:
            raise FormatError(path, "has no section headers, so its symbols cannot be listed")
        size = min(section_count, _MAX_SECTIONS) * section_size
        table = self.read(section_offset, size, "section table")
        self.sections = [
            _Section(name=s[0], kind=s[1], offset=s[4], size=s[5], link=s[6], entry_size=s[9])
            for s in _SECTION.iter_unpack(table)
        ]

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Bytes of the file, which must be there."""
        if size > _MAX_TABLE_BYTES:
            raise FormatError(self.path, f"declares a {what} of {size} bytes, which cannot be true")
        if offset > self.file_size or size > self.file_size - offset:
            raise FormatError(
                self.path, f"is truncated: its {what} lies beyond the end of the file"
            )
        self.file.seek(offset)
        data = self.file.read(size)
        if len(data) != size:
            raise FormatError(self.path, f"is truncated: its {what} ends early")
        return data

    def of(self, kind: int) -> Iterator[_Section]:
        """The sections of a kind."""
        return (section for section in self.sections if section.kind == kind)

    def section(self, name: str) -> bytes:
        """What the section of a name holds; nothing if there is none."""
        if self.names >= len(self.sections):
            return b""
        strings = self.read(
            self.sections[self.names].offset, self.sections[self.names].size, "string table"
        )
        for section in self.sections:
            if _string_at(strings, section.name) == name:
                return self.read(section.offset, section.size, name)
        return b""


def _parse(image: _Image) -> SharedLibrary:
    path, sections, read, machine = image.path, image.sections, image.read, image.machine

    def strings_of(section: _Section) -> bytes:
        if section.link >= len(sections):
            raise FormatError(path, "links a table to a section that does not exist")
        strings = sections[section.link]
        return read(strings.offset, strings.size, "string table")

    symbols = next((s for s in sections if s.kind == _SHT_DYNSYM), None)
    if symbols is None:
        raise FormatError(path, "has no dynamic symbol table")
    if symbols.entry_size != _SYMBOL.size or symbols.size % _SYMBOL.size:
        raise FormatError(path, "has a dynamic symbol table with an impossible entry size")
    exported = frozenset(
        _exported_names(read(symbols.offset, symbols.size, "symbol table"), strings_of(symbols))
    )

    needed: list[str] = []
    symbolic = False
    dynamic = next((s for s in sections if s.kind == _SHT_DYNAMIC), None)
    if dynamic is not None and dynamic.size % _DYNAMIC.size == 0:
        names = strings_of(dynamic)
        for tag, value in _DYNAMIC.iter_unpack(read(dynamic.offset, dynamic.size, "dynamic table")):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED and (name := _string_at(names, value)):
                needed.append(name)
            symbolic |= tag == _DT_SYMBOLIC or (tag == _DT_FLAGS and bool(value & _DF_SYMBOLIC))
    return SharedLibrary(path, machine, exported, tuple(needed), symbolic)


def _exported_names(table: bytes, strings: bytes) -> Iterator[str]:
    for name, info, other, section, _value, _size in _SYMBOL.iter_unpack(table):
        if section == 0 or info >> 4 not in (_STB_GLOBAL, _STB_WEAK):
            continue
        if other & 3 not in (_STV_DEFAULT, _STV_PROTECTED):
            continue
        if text := _string_at(strings, name):
            yield text


def _string_at(strings: bytes, offset: int) -> str:
    """The NUL-terminated name at ``offset``; empty when it is unterminated or out of bounds."""
    end = strings.find(b"\0", offset, offset + 65_536) if offset < len(strings) else -1
    return strings[offset:end].decode("utf-8", "replace") if end > offset else ""
