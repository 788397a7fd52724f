"""Weights that ggml packs into forms of its own when it loads them, as the file has them.

The form of a file is GGUF, ``ggml/include/gguf.h``: a header, values by key, tensors by name with
type, shape and place, and their data.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, Any

from ait_llm.dump.ggml.library import Array, Library, Tensor
from ait_llm.errors import FormatError

_MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q",
            11: "<q", 12: "<d"}  # fmt: skip
_TEXT, _LIST = 8, 9
_PACKED = ("REPACK", "AMX", "KLEIDIAI", "AARCH64", "HBM")
"""Parts of names of memories whose tensors are not in the layout that they say."""
_MOST = 1 << 20


class PackedWeights:
    """Reads tensors from memory, or from the file of the model where memory holds another form.

    Args:
        path: of the model; None if it is not known.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._places: dict[str, int] | None = None

    def read(self, tensor: Tensor, library: Library) -> Array:
        """The values of a tensor that nothing computes.

        Raises:
            FormatError: they are packed, and the file does not have them.
        """
        if not any(part in tensor.place for part in _PACKED):
            return library.read(tensor)
        if self._path is None:
            raise FormatError(tensor.name, f"is packed in {tensor.place}, and has no file")
        if self._places is None:
            self._places = places(self._path)
        place = self._places.get(tensor.name)
        if place is None:
            raise FormatError(self._path, f"has no tensor {tensor.name}")
        with self._path.open("rb") as file:
            file.seek(place)
            return library.decoded(tensor, file.read(library.size(tensor)))


def places(path: Path) -> dict[str, int]:
    """Where the data of each tensor of a file begin.

    Raises:
        FormatError: this is no such file.
    """
    try:
        with path.open("rb") as file:
            return _places(file)
    except (OSError, struct.error, KeyError, ValueError, UnicodeDecodeError) as error:
        raise FormatError(path, f"is no GGUF file ({error})") from error


def _places(file: IO[bytes]) -> dict[str, int]:
    if file.read(4) != _MAGIC:
        raise ValueError("another beginning")
    _, tensors, values = _number(file, "<I"), _number(file, "<Q"), _number(file, "<Q")
    alignment = 32
    for _ in range(values):
        key, value = _text(file), _value(file, _number(file, "<I"))
        if key == "general.alignment":
            alignment = int(value)
    found = {}
    for _ in range(tensors):
        name = _text(file)
        for _ in range(_number(file, "<I")):
            _number(file, "<Q")
        _number(file, "<I")
        found[name] = int(_number(file, "<Q"))
    start = -(-file.tell() // alignment) * alignment
    return {name: start + offset for name, offset in found.items()}


def _number(file: IO[bytes], form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _text(file: IO[bytes]) -> str:
    length = _number(file, "<Q")
    if length > _MOST:
        raise ValueError("a text without end")
    return file.read(length).decode("utf-8", "replace")


def _value(file: IO[bytes], kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        return _number(file, _NUMBERS[kind])
    inner, count = _number(file, "<I"), _number(file, "<Q")
    if inner == _LIST:
        raise ValueError("lists of lists")
    if inner == _TEXT:
        return [_text(file) for _ in range(count)]
    file.seek(count * struct.calcsize(_NUMBERS[inner]), 1)
    return None
