"""Reading the tensors and parameters of one execution count of an ATB dump."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ait_llm.dumps.atb_tree import PARAMS_FILE, PHASES, TENSOR_FILE
from ait_llm.dumps.lazy import Deferred, DeferredMapping
from ait_llm.dumps.tensors import Phase, Role, Source, Tensor
from ait_llm.errors import FormatError
from ait_llm.formats import AtbHeader, Statistics, read_header, resolve_data
from ait_llm.formats.atb_bin import payload_of, read_values
from ait_llm.formats.elements import Array
from ait_llm.formats.opening import contained_file, read_small
from ait_llm.formats.payload import Payload

_MAX_PARAMS_BYTES = 16 * 1024 * 1024
_KEPT_PARAMS = 64  # those of the operations that are looked at just now
_NO_PARAMS: Mapping[str, Any] = MappingProxyType({})
Files = Mapping[Phase, list[str]]


class AtbFiles(Source):
    """Reads the ``.bin`` files of one execution count; shared by all its tensors.

    Args:
        root: folder that no link or reference may leave.
        locate: finds the file of ``{op id}_{in|out}tensor{N}.bin``, see ``resolve_data``.

    Attributes:
        params: reads the parameters of the operation in a folder; empty if it has none.
    """

    __slots__ = ("_locate", "_root", "params")

    def __init__(self, root: Path, locate: Callable[[str], Path | None]) -> None:
        self._root = root
        self._locate = locate
        self.params = lru_cache(maxsize=_KEPT_PARAMS)(self._read_params)

    def header(self, tensor: Tensor) -> AtbHeader:
        """What the file says before its data."""
        return read_header(contained_file(tensor.file, self._root))

    def has_data(self, tensor: Tensor) -> bool:
        """True if the values can be read, here or in the file that the header refers to."""
        header = self._known(tensor)
        if header.has_data:
            return True
        if header.alias is None:
            return False
        try:
            self._resolved(tensor)
        except FormatError:
            return False  # reading them tells why
        return True

    def recorded_statistics(self, tensor: Tensor) -> Statistics | None:
        """Statistics in the header."""
        return self._known(tensor).statistics

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values as stored; see ``formats.read_tensor``."""
        holder, header = self._resolved(tensor)
        return read_values(holder, header, mmap=mmap)

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie, here or in the file that the header refers to."""
        header = self._known(tensor)
        if header.has_data:
            return payload_of(contained_file(tensor.file, self._root), header)
        return None if header.alias is None else payload_of(*self._resolved(tensor))

    def _read_params(self, folder: str) -> Mapping[str, Any]:
        path = Path(folder, PARAMS_FILE)
        if not path.exists() and not path.is_symlink():
            return _NO_PARAMS
        text = read_small(contained_file(path, self._root), _MAX_PARAMS_BYTES, named=path)
        try:
            params = json.loads(text)
        except (ValueError, RecursionError):
            raise FormatError(path, "is not JSON") from None
        if not isinstance(params, dict):
            raise FormatError(path, "is not a JSON object")
        return MappingProxyType(params)

    def _known(self, tensor: Tensor) -> AtbHeader:
        header = tensor.header
        assert isinstance(header, AtbHeader)  # made above
        return header

    def _resolved(self, tensor: Tensor) -> tuple[Path, AtbHeader]:
        return resolve_data(tensor.path, root=self._root, locate=self._locate)


class AtbTensors(Deferred[Tensor]):
    """The tensors of a folder, from file names alone: before first, inputs before outputs.

    The same objects each time, so that their headers are read once; those of kernels, which are
    many and looked at once, are not kept.
    """

    __slots__ = ("_files", "_folder", "_items", "_keep", "_source")

    def __init__(self, folder: str, files: Files, source: AtbFiles, *, keep: bool = True) -> None:
        self._folder = folder
        self._files = files
        self._source = source
        self._keep = keep
        self._items: tuple[Tensor, ...] | None = None

    def listed(self) -> tuple[Tensor, ...]:
        """All of them."""
        if self._items is not None:
            return self._items
        items = tuple(self._list())
        if self._keep:
            self._items = items
        return items

    def _list(self) -> Iterator[Tensor]:
        folder, source = self._folder, self._source
        for phase in PHASES:
            names = self._files.get(phase)
            for role, index, name, ir_name in _parsed(phase, tuple(names)) if names else ():
                yield Tensor(role, index, name, folder, source, phase, ir_name=ir_name or None)


@lru_cache(maxsize=4096)  # operations of one type have tensors of the same names
def _parsed(phase: Phase, names: tuple[str, ...]) -> tuple[tuple[Role, int, str, str], ...]:
    """Role, index, file below the operation's folder and operator's own name, in order."""
    matches = (TENSOR_FILE.fullmatch(name) for name in names)
    found: list[tuple[Role, int, str, str]] = [
        ("in" if match[1] == "in" else "out", int(match[2]), f"{phase}/{match[0]}", match[3] or "")
        for match in matches
        if match is not None
    ]
    return tuple(sorted(found))


class AtbParams(DeferredMapping):
    """The parameters in ``op_param.json``; empty if there are none.

    Looking at them raises FormatError if the file is not a JSON object.
    """

    __slots__ = ("_folder", "_source")

    def __init__(self, folder: str, source: AtbFiles) -> None:
        self._folder = folder
        self._source = source

    def read(self) -> Mapping[str, Any]:
        """All of them."""
        return self._source.params(self._folder)
