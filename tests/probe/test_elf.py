"""The ELF reader tells what a library exports and refuses everything that lies."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from elf_builder import HIDDEN, LOCAL, WEAK, Symbol, shared_library
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.errors import FormatError
from ait_llm.probe.elf import read_shared_library

GOOD = shared_library(["alpha", "beta"], needed=["libm.so.6"])


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    return path


def test_only_defined_visible_global_and_weak_symbols_are_exported(tmp_path: Path) -> None:
    symbols = [
        Symbol("plain"),
        Symbol("weak", binding=WEAK),
        Symbol("imported", defined=False),
        Symbol("private", binding=LOCAL),
        Symbol("hidden", visibility=HIDDEN),
    ]
    library = read_shared_library(write(tmp_path, shared_library(symbols)))
    assert library.exported == {"plain", "weak"}


def test_needed_libraries_and_symbolic_binding_are_read(tmp_path: Path) -> None:
    data = shared_library(["a"], needed=["libc.so.6", "libx.so"], symbolic=True)
    library = read_shared_library(write(tmp_path, data))
    assert library.needed == ("libc.so.6", "libx.so")
    assert library.binds_locally


def test_a_library_without_symbolic_flag_can_be_interposed(tmp_path: Path) -> None:
    assert not read_shared_library(write(tmp_path, GOOD)).binds_locally


@pytest.mark.parametrize(("machine", "name"), [(62, "x86_64"), (183, "aarch64"), (8, "machine 8")])
def test_architecture_is_named(tmp_path: Path, machine: int, name: str) -> None:
    library = read_shared_library(write(tmp_path, shared_library(["a"], machine=machine)))
    assert library.machine_name.endswith(name)


def patched(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not an ELF file"),
        (b"\x7fELF", "is not an ELF file"),
        (b"#!/bin/sh\n" * 20, "is not an ELF file"),
        (patched(4, "<B", 1), "is not a 64-bit little-endian ELF file"),
        (patched(5, "<B", 2), "is not a 64-bit little-endian ELF file"),
        (shared_library(["a"], kind=2), "is an ELF file but not a shared library"),
        (patched(60, "<H", 0), "has no section headers"),
        (patched(58, "<H", 12), "has no section headers"),
        (patched(40, "<Q", 2**63), "its section table lies beyond the end"),
        (GOOD[:-10], "its section table lies beyond the end"),
    ],
)
def test_a_damaged_file_is_refused_with_its_reason(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    path = write(tmp_path, data)
    with pytest.raises(FormatError, match=reason) as caught:
        read_shared_library(path)
    assert str(path) in str(caught.value)


def test_a_table_of_impossible_size_is_not_read(tmp_path: Path) -> None:
    data = bytearray(GOOD)
    sections = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<Q", data, sections + 2 * 64 + 32, 2**62 - 2**62 % 24)
    with pytest.raises(FormatError, match="which cannot be true"):
        read_shared_library(write(tmp_path, bytes(data)))


def test_a_string_table_link_out_of_range_is_refused(tmp_path: Path) -> None:
    data = bytearray(GOOD)
    sections = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<I", data, sections + 2 * 64 + 40, 99)
    with pytest.raises(FormatError, match="section that does not exist"):
        read_shared_library(write(tmp_path, bytes(data)))


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.so: cannot be read \(No such file"):
        read_shared_library(tmp_path / "none.so")


def test_a_directory_and_a_pipe_are_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        with pytest.raises(
            FormatError, match=r"(not a regular file|cannot be read .Is a directory.)"
        ):
            read_shared_library(path)


@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=12
    ),
    length=st.integers(0, len(GOOD)),
)
def test_no_mutation_makes_it_fail_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(GOOD)
    for offset, value in edits:
        data[offset] = value
    path = tmp_path_factory.getbasetemp() / "mutated.so"
    path.write_bytes(bytes(data[:length]) if length % 3 == 0 else bytes(data))
    try:
        library = read_shared_library(path)
    except FormatError as error:
        told = str(error)
    else:
        told = str(library.path)
        assert all(library.exported)
    assert str(path) in told
