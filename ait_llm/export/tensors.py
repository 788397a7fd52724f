"""All tensors of a dump in one file, with one of them in memory at a time."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from ait_llm import __version__
from ait_llm.core import DType
from ait_llm.dumps import Dump
from ait_llm.errors import FormatError, UsageError
from ait_llm.export.names import Named, named_tensors
from ait_llm.formats import LoadedTensor
from ait_llm.formats.elements import encode
from ait_llm.formats.safetensors_file import SAFETENSORS_NAMES
from ait_llm.formats.save import fitting
from ait_llm.formats.writing import new_file

TENSOR_FORMATS = ("safetensors", "npz")
METADATA = "__metadata__"
_COPIED = 1 << 20  # bytes at once


@dataclass(slots=True)
class Exported:
    """What became of the tensors of a dump.

    Attributes:
        tensors: how many were written.
        widened: those whose type the format does not know, in words.
        problems: those that could not be written, and why.
    """

    tensors: int = 0
    widened: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def export_tensors(
    dump: Dump,
    file: Path,
    format_name: str,
    *,
    on_tensor: Callable[[int], None] | None = None,
) -> Exported:
    """Write every tensor of a dump into one file, under the names of :func:`named_tensors`.

    Private layouts of devices become row-major. A type that the format does not know is widened,
    no value changes: bf16, fp8 and int4 in ``npz``, those of less than a byte in ``safetensors``.
    What is known of each tensor is in the metadata: of safetensors the entry ``tensors``, of npz
    the array ``__metadata__``, both as JSON.

    Args:
        dump: the dump.
        file: replaced when everything is written.
        format_name: one of :data:`TENSOR_FORMATS`.
        on_tensor: called with the number of tensors that are done.

    Raises:
        UsageError: no such format.
        FormatError: the file cannot be written, or a folder of the dump cannot be read.
    """
    if format_name not in TENSOR_FORMATS:
        raise UsageError(f"{format_name!r} is no format; known: {', '.join(TENSOR_FORMATS)}")
    result = Exported()
    about: dict[str, str] = {"tool": f"ait-llm {__version__}", "dump": dump.kind}
    with new_file(file) as target:
        writer: _Writer = _Npz(target) if format_name == "npz" else _Safetensors(target, file)
        with writer:
            facts = {}
            for done, named in enumerate(named_tensors(dump), 1):
                tensor = _written(writer, named, format_name, result)
                if tensor is not None:
                    facts[named.name] = {**named.facts, "dtype": tensor.label}
                if on_tensor is not None:
                    on_tensor(done)
            writer.finish({**about, "tensors": json.dumps(facts, ensure_ascii=False)})
    return result


class _Writer(Protocol):
    def __enter__(self) -> _Writer: ...
    def __exit__(self, *error: object) -> None: ...
    def add(self, name: str, tensor: LoadedTensor) -> None: ...
    def finish(self, metadata: dict[str, str]) -> None: ...


def _written(writer: _Writer, named: Named, format_name: str, result: Exported) -> DType | None:
    """The type that the dump has for a tensor that was written; None for one that was not."""
    try:
        problem = named.tensor.problem
        if problem is not None:
            result.problems.append(f"{named.name}: {problem}")
            return None
        dtype = named.tensor.dtype
        tensor = fitting(LoadedTensor(named.tensor.nd(), dtype), format_name)
    except (FormatError, ValueError) as error:
        result.problems.append(f"{named.name}: {error}")
        return None
    writer.add(named.name, tensor)
    result.tensors += 1
    if tensor.dtype is not dtype:
        result.widened.append(f"{named.name}: {dtype.label} as {tensor.dtype.label}")
    return dtype


class _Npz:
    """An archive of ``.npy`` files, stored as they are."""

    def __init__(self, target: BinaryIO) -> None:
        self._archive = zipfile.ZipFile(target, "w", zipfile.ZIP_STORED)

    def __enter__(self) -> _Npz:
        return self

    def __exit__(self, *error: object) -> None:
        self._archive.close()

    def add(self, name: str, tensor: LoadedTensor) -> None:
        self._store(name, tensor.array)

    def finish(self, metadata: dict[str, str]) -> None:
        self._store(METADATA, np.array(json.dumps(metadata, ensure_ascii=False)))

    def _store(self, name: str, array: Any) -> None:  # an array of any type
        # One date for all: the same dump makes the same bytes.
        entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
        with self._archive.open(entry, "w", force_zip64=True) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)


class _Safetensors:
    """Values first, into a file beside, because the table of contents comes before them."""

    def __init__(self, target: BinaryIO, file: Path) -> None:
        self._target = target
        self._values = tempfile.TemporaryFile(dir=file.parent)  # noqa: SIM115  closed in __exit__
        self._contents: dict[str, object] = {}
        self._end = 0

    def __enter__(self) -> _Safetensors:
        return self

    def __exit__(self, *error: object) -> None:
        self._values.close()

    def add(self, name: str, tensor: LoadedTensor) -> None:
        data = encode(tensor.array, tensor.dtype)
        begin, self._end = self._end, self._end + len(data)
        self._contents[name] = {
            "dtype": SAFETENSORS_NAMES[tensor.dtype],
            "shape": list(tensor.array.shape),
            "data_offsets": [begin, self._end],
        }
        self._values.write(data)

    def finish(self, metadata: dict[str, str]) -> None:
        table = {METADATA: metadata, **self._contents}
        header = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)  # values begin at a multiple of 8
        self._target.write(len(header).to_bytes(8, "little") + header)
        self._values.seek(0)
        shutil.copyfileobj(self._values, self._target, _COPIED)
