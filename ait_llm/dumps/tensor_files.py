"""Tensor files as tensors of a dump: ``.bin .npy .pt .pth .safetensors``, one or several each, and
dump files of the graph engine.

Opening a file costs its table of contents at most, and that only when a shape, a type or the list
of tensors is asked for. Values are read tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ait_llm.core import TensorDesc
from ait_llm.dumps.tensors import Described, Source, Tensor
from ait_llm.formats import AtbHeader, LoadedTensor, Statistics, load
from ait_llm.formats.atb_bin import SUFFIX as ATB_SUFFIX
from ait_llm.formats.atb_bin import read_header
from ait_llm.formats.atb_header import MAGIC
from ait_llm.formats.elements import Array
from ait_llm.formats.ge_file import GeFile, read_ge
from ait_llm.formats.ge_values import ge_payload
from ait_llm.formats.locate import locate
from ait_llm.formats.npy import SUFFIX as NPY_SUFFIX
from ait_llm.formats.npy import read_npy_header
from ait_llm.formats.opening import contained_file, open_regular
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_payload import pth_payloads
from ait_llm.formats.safetensors_file import SUFFIX as SAFETENSORS_SUFFIX
from ait_llm.formats.safetensors_file import SafetensorsEntry, index_safetensors, read_entry
from ait_llm.formats.torch_file import SUFFIXES as TORCH_SUFFIXES
from ait_llm.formats.torch_file import read_torch

SUFFIXES = (ATB_SUFFIX, NPY_SUFFIX, SAFETENSORS_SUFFIX, *TORCH_SUFFIXES)
_ZIP = b"PK\x03\x04"


class TensorFile(Source):
    """A file that holds one or several tensors, which it reads itself.

    Args:
        path: the file.
        root: folder that no link may leave; None for a file that the user named.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, root: Path | None = None) -> None:
        self.path = path
        self._root = root

    @property
    def place(self) -> Path:
        """The path to open.

        Raises:
            FormatError: a link that leaves the folder.
        """
        return self.path if self._root is None else contained_file(self.path, self._root)

    @property
    def is_ge(self) -> bool:
        """True for a dump file of the graph engine, which has no suffix of its own."""
        return self.path.suffix.lower() not in SUFFIXES

    @cached_property
    def is_container(self) -> bool:
        """True for a file type that holds tensors by name.

        Raises:
            FormatError: the file cannot be read.
        """
        suffix = self.path.suffix.lower()
        if suffix == SAFETENSORS_SUFFIX or suffix in TORCH_SUFFIXES or self.is_ge:
            return True
        return suffix == ATB_SUFFIX and not self._starts_with(MAGIC)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Names of the tensors in the file's order; ``""`` for a sole one without a name.

        Raises:
            FormatError: the file is damaged.
        """
        if self.path.suffix.lower() == SAFETENSORS_SUFFIX:
            return tuple(self._index)
        if not self.is_container:
            return ("",)
        if self.is_ge:
            return tuple(tensor.name for tensor in self._operator.tensors)
        return tuple(self._loaded if self._places is None else self._places)

    def tensor(self, key: str, index: int = 0) -> Tensor:
        """One of :attr:`keys`, which is its name; taken as a result that is judged."""
        return Tensor("out", index, str(self.path), "", self, own_name=key)

    def header(self, tensor: Tensor) -> Described:
        """Type, shape and format."""
        return Described(self.describe(_key(tensor)))

    def has_data(self, tensor: Tensor) -> bool:
        """True unless the file is a description only."""
        if self.is_ge:
            return self.holds(_key(tensor))
        header = self._atb_header
        return header is None or header.has_data or header.alias is not None

    def recorded_statistics(self, tensor: Tensor) -> Statistics | None:
        """Those in the header of an ATB file."""
        header = self._atb_header
        return None if header is None else header.statistics

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values as stored."""
        return self.read(_key(tensor), mmap=mmap is not False).array

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values with their type."""
        return self.read(_key(tensor))

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where its bytes lie, so that they can be read in blocks; None if they must be loaded."""
        return self.locate(_key(tensor))

    def describe(self, key: str) -> TensorDesc:
        """Type, shape and format of a tensor.

        Raises:
            FormatError: the file is damaged.
        """
        suffix = self.path.suffix.lower()
        if suffix == SAFETENSORS_SUFFIX:
            return self._index[key].desc
        if suffix == NPY_SUFFIX:
            return read_npy_header(self.place)
        if not self.is_container:
            return read_header(self.place).desc
        if self.is_ge:
            tensor = self._operator[key]
            return TensorDesc(tensor.dtype, tensor.shape)  # read in logical dims
        if self._places is not None:
            return TensorDesc(self._places[key].dtype, self._places[key].shape)
        loaded = self._loaded[key]
        return TensorDesc(loaded.dtype, loaded.array.shape)

    def holds(self, key: str) -> bool:
        """True unless a dump file of the graph engine lacks the values of a tensor.

        Raises:
            FormatError: the file is damaged.
        """
        return not self.is_ge or self._operator[key].problem is None

    def read(self, key: str, *, mmap: bool = False) -> LoadedTensor:
        """The values of a tensor.

        Raises:
            FormatError: the file is damaged.
            MissingDependencyError: the file type needs a package that is not installed.
        """
        if self.path.suffix.lower() == SAFETENSORS_SUFFIX:
            return read_entry(self.place, self._index[key], mmap=mmap)
        if self.is_ge:
            return load(self.place, key)
        if self.is_container:
            return self._loaded[key]
        return load(self.place)

    def locate(self, key: str) -> Payload | None:
        """Where the bytes of a tensor lie; None if the file must be read as a whole.

        Raises:
            FormatError: the file is damaged or holds no values.
        """
        if self.is_ge:
            return ge_payload(self._operator, self._operator[key])
        if self.is_container and self.path.suffix.lower() != SAFETENSORS_SUFFIX:
            return None if self._places is None else self._places.get(key)
        return (locate(self.place) or {}).get(key)

    @property
    def _atb_header(self) -> AtbHeader | None:
        """The header of an ATB file, None for other types."""
        if self.is_container or self.path.suffix.lower() == NPY_SUFFIX:
            return None
        return read_header(self.place)

    @cached_property
    def _index(self) -> Mapping[str, SafetensorsEntry]:
        return index_safetensors(self.place)

    @cached_property
    def _operator(self) -> GeFile:
        return read_ge(self.place)

    @cached_property
    def _places(self) -> Mapping[str, Payload] | None:
        """The tensors of a torch file as far as its table tells without torch."""
        return pth_payloads(self.place)

    @property
    def _loaded(self) -> Mapping[str, LoadedTensor]:
        """The tensors of a torch file; those of a mapped one are read when they are used."""
        if self._archive is not None:
            return self._archive
        tensors = read_torch(self.place, mmap=True)
        if self._starts_with(_ZIP):
            self._archive = tensors
        return tensors

    _archive: Mapping[str, LoadedTensor] | None = None

    def _starts_with(self, magic: bytes) -> bool:
        with open_regular(self.place) as file:
            return file.read(len(magic)) == magic


def _key(tensor: Tensor) -> str:
    return tensor.own_name or ""
