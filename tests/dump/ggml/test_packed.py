"""Where a GGUF file has its tensors, byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from llama_stand_in import RecordedLibrary, tensor

from ait_llm.dump.ggml.packed import PackedWeights, places
from ait_llm.errors import FormatError


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


HEADER = (
    b"GGUF"
    + struct.pack("<IQQ", 3, 2, 4)
    + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    + text("general.alignment") + struct.pack("<II", 4, 64)
    + text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    + text("scores") + struct.pack("<IIQ", 9, 6, 3) + struct.pack("<fff", 1, 2, 3)
    + text("w") + struct.pack("<IQIQ", 1, 4, 0, 0)
    + text("v") + struct.pack("<IQQIQ", 2, 2, 2, 0, 64)
)  # fmt: skip
DATA = struct.pack("<ffff", 1, 2, 3, 4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    start = -(-len(HEADER) // 64) * 64
    path.write_bytes(HEADER.ljust(start, b"\0") + DATA.ljust(64, b"\0") + DATA[::-1])
    return path


def test_data_begin_at_their_alignment(file: Path) -> None:
    start = -(-len(HEADER) // 64) * 64
    assert places(file) == {"w": start, "v": start + 64}


def test_a_packed_weight_is_read_from_the_file(file: Path) -> None:
    class Sized(RecordedLibrary):
        def size(self, _tensor: object) -> int:
            return 16

    packed = tensor("w", "NONE", (4,), place="CPU_REPACK")
    found = PackedWeights(file).read(packed, Sized())
    assert np.array_equal(found.reshape(-1), [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("path", "words"),
    [(None, "has no file"), ("model.gguf", "has no tensor other"), ("gone", "is no GGUF file")],
)
def test_what_cannot_be_read_is_said(file: Path, path: str | None, words: str) -> None:
    weights = PackedWeights(None if path is None else file.with_name(path))
    with pytest.raises(FormatError, match=words):
        weights.read(tensor("other", "NONE", (4,), place="CPU_REPACK"), RecordedLibrary())


@pytest.mark.parametrize("cut", [0, 3, 20, 60, len(HEADER) - 1])
def test_a_file_that_breaks_off_is_said(file: Path, cut: int) -> None:
    file.write_bytes(HEADER[:cut])
    with pytest.raises(FormatError, match="is no GGUF file"):
        places(file)


def test_a_text_without_end_is_refused(file: Path) -> None:
    file.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60))
    with pytest.raises(FormatError, match="a text without end"):
        places(file)
