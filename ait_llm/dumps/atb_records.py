"""Tensors, kernels and operations of an ATB dump."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ait_llm.core import DType, OpId
from ait_llm.dumps.atb_tree import PARAMS_FILE, PHASES, TENSOR_FILE
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import FormatError
from ait_llm.formats import AtbHeader, Statistics, measure, read_header, resolve_data
from ait_llm.formats.atb_bin import payload_of, read_values
from ait_llm.formats.elements import Array
from ait_llm.formats.layout import to_nd
from ait_llm.formats.loaded import LoadedTensor
from ait_llm.formats.opening import read_small, unlinked
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    import torch

_MAX_PARAMS_BYTES = 16 * 1024 * 1024
TILING_FILE = "kernel_tilingdata.bin"
_NO_PARAMS: Mapping[str, Any] = MappingProxyType({})
Files = Mapping[Phase, list[str]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of one execution count lie, shared by all its tensors.

    Attributes:
        root: folder that no link or reference may leave.
        step: the execution count.
        locate: finds the file of ``{op id}_{in|out}tensor{N}.bin``, see ``resolve_data``.
    """

    root: Path
    step: int
    locate: Callable[[str], Path | None]


@dataclass(frozen=True, slots=True)
class AtbTensor:
    """A ``.bin`` file; see :class:`ait_llm.dumps.model.Tensor`."""

    role: Role
    index: int
    ir_name: str | None
    phase: Phase
    file: str
    place: Place = field(repr=False, compare=False)
    _header: AtbHeader | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``."""
        return f"{self.role}tensor{self.index}"

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.file)

    @property
    def header(self) -> AtbHeader:
        """The header, read once.

        Raises:
            FormatError: the file is not a sound tensor file, or a link that leaves the dump.
        """
        if self._header is None:
            path = unlinked(self.file, self.place.root)
            object.__setattr__(self, "_header", read_header(path))
        assert self._header is not None
        return self._header

    @property
    def dtype(self) -> DType:
        """Logical element type."""
        return self.header.desc.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Dims as recorded; storage dims for private formats."""
        return self.header.desc.shape

    @property
    def format(self) -> int:
        """ATB format code."""
        return self.header.desc.format

    @property
    def has_data(self) -> bool:
        """True if the values can be read, here or in the file that the header refers to."""
        if self.header.has_data:
            return True
        if self.header.alias is None:
            return False
        try:
            self._resolved()
        except FormatError:
            return False  # numpy() tells why
        return True

    @property
    def statistics(self) -> Statistics | None:
        """Statistics in the header, else computed from the values, else None.

        Complex values have none.

        Raises:
            FormatError: the file is damaged.
        """
        recorded = self.header.statistics
        if recorded is not None or not self.has_data:
            return recorded
        array = self.numpy()
        return None if array.dtype.kind == "c" else measure(array)

    @property
    def recorded_statistics(self) -> Statistics | None:
        """Statistics in the header; None if the capture computed none.

        Raises:
            FormatError: the file is damaged.
        """
        return self.header.statistics

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values as stored; see ``formats.read_tensor``.

        Raises:
            FormatError: no values are stored, or the file is damaged.
        """
        holder, header = self._resolved()
        return read_values(holder, header, mmap=mmap)

    def payload(self) -> Payload | None:
        """Where the values lie; None if none are stored.

        Raises:
            FormatError: the file is damaged, or refers to another one that cannot be used.
        """
        if self.header.has_data:
            return payload_of(unlinked(self.file, self.place.root), self.header)
        return None if self.header.alias is None else payload_of(*self._resolved())

    def nd(self) -> Array:
        """The values in row-major order, FRACTAL_NZ and NC1HWC0 converted.

        Raises:
            FormatError: as :meth:`numpy`, or a format that is not converted.
        """
        array = self.numpy()
        try:
            return to_nd(array, self.shape, self.format, self.dtype)
        except ValueError as error:
            raise FormatError(self.path, str(error)) from None

    def torch(self) -> torch.Tensor:
        """The values as stored, as a CPU tensor of the same element type.

        Raises:
            FormatError: as :meth:`numpy`.
            MissingDependencyError: torch is not installed.
        """
        return LoadedTensor(self.numpy(), self.dtype, self.format).torch()

    def _resolved(self) -> tuple[Path, AtbHeader]:
        return resolve_data(self.path, root=self.place.root, locate=self.place.locate)


@dataclass(frozen=True, slots=True)
class AtbKernel:
    """A kernel folder; see :class:`ait_llm.dumps.model.Kernel`."""

    index: int
    name: str
    folder: str
    tiling_folder: str = field(repr=False)
    files: Files = field(repr=False, compare=False)
    place: Place = field(repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    @property
    def tiling_path(self) -> Path | None:
        """The raw tiling data that was passed to the kernel, None if not captured."""
        for folder in (self.tiling_folder, self.folder):
            path = Path(folder, TILING_FILE)
            if path.is_file():
                return path
        return None

    @property
    def tensors(self) -> tuple[AtbTensor, ...]:
        """All tensors: phase before first, inputs before outputs."""
        return list_tensors(self.folder, self.files, self.place)


@dataclass(frozen=True, slots=True)
class AtbOperation:
    """An operation folder; see :class:`ait_llm.dumps.model.Operation`."""

    op_id: OpId
    type: str
    step: int
    device: int
    pid: int
    is_graph: bool
    folder: str
    kernels: tuple[AtbKernel, ...] = field(repr=False)
    files: Files = field(repr=False, compare=False)
    place: Place = field(repr=False, compare=False)
    _tensors: tuple[AtbTensor, ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """``LinearOperation_0_1``."""
        return f"{self.type}_{self.op_id}"

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Which of before and after were captured."""
        return tuple(phase for phase in PHASES if phase in self.files)

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters in ``op_param.json``; empty if there are none.

        Raises:
            FormatError: the file is not a JSON object.
        """
        path = self.path / PARAMS_FILE
        if not path.exists() and not path.is_symlink():
            return _NO_PARAMS
        text = read_small(unlinked(path, self.place.root), _MAX_PARAMS_BYTES, named=path)
        try:
            params = json.loads(text)
        except (ValueError, RecursionError):
            raise FormatError(path, "is not JSON") from None
        if not isinstance(params, dict):
            raise FormatError(path, "is not a JSON object")
        return MappingProxyType(params)

    @property
    def tensors(self) -> tuple[AtbTensor, ...]:
        """All tensors: phase before first, inputs before outputs.

        The same objects each time, so that their headers are read once.
        """
        if self._tensors is None:
            tensors = list_tensors(self.folder, self.files, self.place)
            object.__setattr__(self, "_tensors", tensors)
        assert self._tensors is not None
        return self._tensors

    @property
    def inputs(self) -> tuple[AtbTensor, ...]:
        """Inputs in the state before the operation where captured, else after it."""
        return _prefer(self.tensors, "in", "before")

    @property
    def outputs(self) -> tuple[AtbTensor, ...]:
        """Outputs in the state after the operation where captured, else before it."""
        return _prefer(self.tensors, "out", "after")


def list_tensors(folder: str, files: Files, place: Place) -> tuple[AtbTensor, ...]:
    """The tensors of one folder, from file names alone."""
    tensors = []
    for phase in PHASES:
        found = []
        for name in files.get(phase, ()):
            match = TENSOR_FILE.fullmatch(name)
            if match is None:
                continue
            role: Role = "in" if match[1] == "in" else "out"
            path = f"{folder}/{phase}/{name}"
            found.append(AtbTensor(role, int(match[2]), match[3], phase, path, place))
        found.sort(key=lambda tensor: (tensor.role, tensor.index, tensor.file))
        tensors += found
    return tuple(tensors)


def _prefer(tensors: tuple[AtbTensor, ...], role: Role, phase: Phase) -> tuple[AtbTensor, ...]:
    chosen: dict[int, AtbTensor] = {}
    for tensor in tensors:
        if tensor.role == role and (tensor.index not in chosen or tensor.phase == phase):
            chosen[tensor.index] = tensor
    return tuple(chosen[index] for index in sorted(chosen))
