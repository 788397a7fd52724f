from __future__ import annotations

import os
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from statistics_library import built_kernels

from ait_llm.formats import pth_writer
from ait_llm.formats.pth_writer import (
    MAX_PLAIN_BYTES,
    PthTemplate,
    pth_template,
    write_pth,
    write_pth_at,
)

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]


Write = Callable[[Path, PthTemplate, memoryview], int]


def natively(path: Path, template: PthTemplate, data: memoryview) -> int:
    flat = np.frombuffer(data, dtype=np.uint8)
    return write_pth_at(built_kernels(), str(path), template, flat.ctypes.data)


@pytest.fixture(params=["python", pytest.param("native", marks=pytest.mark.native)])
def write(request: pytest.FixtureRequest) -> Write:
    return natively if request.param == "native" else write_pth


def raw(size: int) -> memoryview:
    return memoryview(bytes((7 * i + i // 251) % 2 for i in range(size)))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 9), max_size=4).map(tuple))
def test_torch_load_reads_back_every_bit(
    tmp_path: Path, write: Write, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "tensor.pth"
    template = pth_template(dtype, shape)
    data = raw(template.data_size)

    size = write(path, template, data)

    read = torch.load(path, weights_only=True)
    assert (read.dtype, tuple(read.shape)) == (dtype, shape)
    assert read.is_contiguous()
    assert not read.requires_grad
    content = read.reshape(-1).view(torch.uint8).numpy().tobytes() if read.numel() else b""
    assert content == bytes(data)
    assert path.stat().st_size == size


@pytest.mark.parametrize("elements", [0, 1, 1023, 1024, 1 << 18])
def test_file_is_a_whole_zip_archive(tmp_path: Path, write: Write, elements: int) -> None:
    template = pth_template(torch.int16, (elements,))
    write(tmp_path / "a.pth", template, raw(2 * elements))

    with zipfile.ZipFile(tmp_path / "a.pth") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        info = archive.getinfo("tensor/data/0")
    assert names[0] == "tensor/data.pkl"
    assert info.file_size == 2 * elements


def test_data_begin_on_the_boundary_that_mapping_needs(tmp_path: Path, write: Write) -> None:
    for elements in range(1, 40):
        template = pth_template(torch.uint8, (elements,) * 2)
        write(tmp_path / "a.pth", template, memoryview(b"\xa5" * elements**2))
        content = (tmp_path / "a.pth").read_bytes()
        assert content.index(b"\xa5" * elements**2) % 64 == 0


def test_mapped_file_has_the_same_values(tmp_path: Path, write: Write) -> None:
    tensor = torch.arange(5000, dtype=torch.float64)
    template = pth_template(tensor.dtype, (5000,))
    write(tmp_path / "a.pth", template, memoryview(tensor.numpy()).cast("B"))

    assert torch.equal(torch.load(tmp_path / "a.pth", mmap=True, weights_only=True), tensor)


def test_tensor_above_the_size_of_a_plain_record_is_refused() -> None:
    assert pth_template(torch.uint8, (MAX_PLAIN_BYTES,)).data_size == MAX_PLAIN_BYTES
    with pytest.raises(ValueError, match="do not fit"):
        pth_template(torch.uint8, (MAX_PLAIN_BYTES + 1,))


def test_data_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        write_pth(tmp_path / "a.pth", pth_template(torch.uint8, (4,)), memoryview(b"12345"))
    assert not list(tmp_path.iterdir())


def test_writes_that_take_only_a_part_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(descriptor: int, parts: list[memoryview]) -> int:
        return os.write(descriptor, parts[0][:7])

    monkeypatch.setattr(pth_writer.os, "writev", short)
    tensor = torch.arange(40, dtype=torch.int32)
    template = pth_template(tensor.dtype, (40,))
    write_pth(tmp_path / "a.pth", template, memoryview(tensor.numpy()).cast("B"))

    assert torch.equal(torch.load(tmp_path / "a.pth", weights_only=True), tensor)


def test_failed_write_leaves_the_earlier_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pth"
    template = pth_template(torch.uint8, (4,))
    write_pth(path, template, memoryview(b"1234"))

    def full(descriptor: int, parts: list[memoryview]) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pth_writer.os, "writev", full)
    with pytest.raises(OSError, match="No space left"):
        write_pth(path, template, memoryview(b"5678"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pth"]
    assert bytes(torch.load(path, weights_only=True).numpy()) == b"1234"


@pytest.mark.native
def test_failed_native_write_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    template = pth_template(torch.uint8, (4,))
    natively(path, template, memoryview(b"1234"))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            natively(path, template, memoryview(b"5678"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pth"]
    assert bytes(torch.load(path, weights_only=True).numpy()) == b"1234"


@pytest.mark.native
def test_a_link_in_the_place_of_what_is_begun_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "a.pth.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        natively(tmp_path / "a.pth", pth_template(torch.uint8, (4,)), memoryview(b"1234"))
    assert not list(tmp_path.iterdir())


def test_file_has_the_mode_of_captured_files(tmp_path: Path, write: Write) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "a.pth", pth_template(torch.uint8, (1,)), memoryview(b"1"))
    finally:
        os.umask(before)
    assert (tmp_path / "a.pth").stat().st_mode & 0o777 == 0o640


def test_a_file_whose_descriptor_the_program_takes_away_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = torch.arange(12.0)
    writev, taken = os.writev, []

    def takes_away(descriptor: int, parts: list[memoryview]) -> int:
        if not taken:  # as daemons do: the number is then one of a file of theirs
            os.close(descriptor)
            taken.append(os.open(os.devnull, os.O_RDWR))
            assert taken == [descriptor]
        return writev(descriptor, parts)

    monkeypatch.setattr(os, "writev", takes_away)
    path = tmp_path / "a.pth"
    write_pth(path, pth_template(tensor.dtype, tensor.shape), tensor.numpy().view("u1").data)
    assert torch.equal(torch.load(path, weights_only=True), tensor)
    os.close(taken[0])  # it is still open: it was not ours
