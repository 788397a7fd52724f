"""The record of one dumped tensor, and what reads it.

Every reader yields this one class. What differs between tools, how a header is found and values are
decoded, is in the tensor's source, which tensors of one folder share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, format_name, measure
from ait_llm.formats.elements import Array
from ait_llm.formats.layout import to_nd
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    import torch

Role = Literal["in", "out"]
Phase = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which value a tensor is, as far as the capture could tell.

    Equal storage and version with equal offset, strides and shape is the same value; equal storage
    and version alone is a view of it.

    Attributes:
        storage: running number of the storage, never used again within a process.
        version: writes into that storage that the capture had seen.
        offset: of the first element, in elements.
        strides: in elements.
    """

    storage: int
    version: int
    offset: int
    strides: tuple[int, ...]


class Header(Protocol):
    """What is known of a tensor without its values."""

    @property
    def desc(self) -> TensorDesc:
        """Logical element type, dims and format."""
        ...


@dataclass(frozen=True, slots=True)
class Described:
    """A header that says no more than it must."""

    desc: TensorDesc


class Source(Protocol):
    """Reads tensors; a reader subclasses it and says at least what a header and values are.

    All methods raise FormatError for a file that is damaged, or leaves its folder.
    """

    __slots__ = ()

    def header(self, tensor: Tensor) -> Header:
        """Type, dims and format; read once for each tensor."""
        ...

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values as stored.

        Raises:
            FormatError: none are stored.
        """
        ...

    def has_data(self, tensor: Tensor) -> bool:
        """True if values can be read."""
        return True

    def problem(self, tensor: Tensor) -> str | None:
        """Why there are no values, as a clause; None if there are."""
        return None if self.has_data(tensor) else "no data"

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie; None if none are stored or only :meth:`values` can read them."""
        return None

    def recorded_statistics(self, tensor: Tensor) -> Statistics | None:
        """Statistics that the capture computed; None if it did not."""
        return None

    def has_logical_dims(self, tensor: Tensor) -> bool:
        """True if the header has the dims of the row-major array, whatever the format."""
        return False

    def arranged(self, tensor: Tensor) -> Array:
        """The values in row-major order, private device formats converted."""
        array, desc = self.values(tensor), tensor.header.desc
        if desc.format == FORMAT_ND:
            return array
        try:
            return to_nd(array, desc.shape, desc.format, desc.dtype)
        except ValueError as error:
            raise FormatError(tensor.path, str(error)) from None

    def rounding(self, tensor: Tensor) -> float:
        """Relative Euclidean distance that rounding to what could be stored has cost; 0 if none."""
        return 0.0

    def stored_as(self, tensor: Tensor) -> str:
        """How a weight is stored whose values are computed when they are read; else empty."""
        return ""

    def measured(self, tensor: Tensor) -> Array:
        """The values that statistics are computed from."""
        return self.values(tensor)

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values with their logical type."""
        desc = tensor.header.desc
        return LoadedTensor(self.values(tensor), desc.dtype, desc.format)

    def as_torch(self, tensor: Tensor) -> torch.Tensor:
        """The values as a CPU tensor of the same element type, in memory of its own."""
        return self.loaded(tensor).torch()

    def names(self, tensor: Tensor) -> tuple[str, str]:
        """What the tool calls the element type and the format."""
        desc = tensor.header.desc
        return desc.dtype.label, format_name(desc.format)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One dumped tensor. Listing it costs its names only.

    Attributes:
        role: input or output of its operation.
        index: position among the inputs or outputs.
        file_name: name of the file in ``folder``.
        folder: shared by its neighbours; empty where ``file_name`` is a whole path.
        source: reads it.
        phase: whether it was captured before or after the operation ran.
        stem: what the capture calls the value: ``input_attention_mask``, ``output_0``, ``INPUT.0``;
            empty where nothing names it.
        ir_name: the operator's own name for it (``weight``), or None.
        argument: position of the argument or result that it is, or is an element of, where that
            differs from ``index`` because lists come before it.
        element: position within an argument that is a list, else None.
        own_name: name where it is not role and index.
        identity: which value it is; None if the capture could not tell.
        original_op: operator before fusion that made it and which output of that, where recorded.
    """

    role: Role
    index: int
    file_name: str
    folder: str
    source: Source = field(repr=False, compare=False)
    phase: Phase = "after"
    stem: str = ""
    ir_name: str | None = None
    argument: int | None = None
    element: int | None = None
    own_name: str | None = None
    identity: Identity | None = field(default=None, compare=False)
    original_op: tuple[str, int] | None = field(default=None, compare=False)
    _header: Header | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``, or its own name."""
        return f"{self.role}tensor{self.index}" if self.own_name is None else self.own_name

    @property
    def position(self) -> int:
        """Place among the arguments or results; elements of a list share that of their list."""
        return self.index if self.argument is None else self.argument

    @property
    def file(self) -> str:
        """Path of the file."""
        return f"{self.folder}/{self.file_name}" if self.folder else self.file_name

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.file)

    @property
    def header(self) -> Header:
        """What is known without the values, read once.

        Raises:
            FormatError: the file is damaged.
        """
        found = self._header
        if found is None:
            found = self.source.header(self)
            object.__setattr__(self, "_header", found)
        return found

    @property
    def dtype(self) -> DType:
        """Logical element type.

        Raises:
            FormatError: the file is damaged.
        """
        return self.header.desc.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Dims as the tool recorded them; storage dims for ATB's private formats.

        Raises:
            FormatError: the file is damaged.
        """
        return self.header.desc.shape

    @property
    def format(self) -> int:
        """ATB format code.

        Raises:
            FormatError: the file is damaged.
        """
        return self.header.desc.format

    @property
    def has_data(self) -> bool:
        """True if values can be read, here or in the file that this one refers to.

        Raises:
            FormatError: the file is damaged.
        """
        return self.source.has_data(self)

    @property
    def problem(self) -> str | None:
        """Why there are no values, as a clause; None if there are.

        Raises:
            FormatError: the file is damaged.
        """
        return self.source.problem(self)

    @property
    def recorded_statistics(self) -> Statistics | None:
        """Statistics that the capture computed; None if it did not.

        Raises:
            FormatError: the file is damaged.
        """
        return self.source.recorded_statistics(self)

    @property
    def statistics(self) -> Statistics | None:
        """Recorded statistics, else computed ones; None without values, or for complex ones.

        Raises:
            FormatError: the file is damaged.
        """
        recorded = self.source.recorded_statistics(self)
        if recorded is not None or not self.source.has_data(self):
            return recorded
        array = self.source.measured(self)
        return None if array.dtype.kind in "cUS" else measure(array)

    @property
    def type_names(self) -> tuple[str, str]:
        """Names of the element type and the format, also of types that have no values here.

        Raises:
            FormatError: the file is damaged.
        """
        return self.source.names(self)

    @property
    def stored_as(self) -> str:
        """How a quantised weight is stored whose real numbers these are, for people; else empty."""
        return self.source.stored_as(self)

    @property
    def rounding(self) -> float:
        """What rounding has cost where the values stand for a quantised weight, else 0.

        It is the relative Euclidean distance from a weight that was rounded to the nearest value.

        Raises:
            FormatError: the file is damaged.
        """
        return self.source.rounding(self)

    def payload(self) -> Payload | None:
        """Where the values lie; None if none are stored or only :meth:`numpy` can read them.

        Raises:
            FormatError: the file is damaged, or refers to another one that cannot be used.
        """
        return self.source.payload(self)

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values as stored.

        Raises:
            FormatError: none are stored, or the file is damaged.
        """
        return self.source.values(self, mmap=mmap)

    def nd(self) -> Array:
        """The values in row-major order, private device formats converted.

        Raises:
            FormatError: as :meth:`numpy`, or a format that is not converted.
        """
        return self.source.arranged(self)

    def torch(self) -> torch.Tensor:
        """The values as a CPU tensor of the same element type.

        Raises:
            FormatError: as :meth:`numpy`.
            MissingDependencyError: torch is not installed.
        """
        return self.source.as_torch(self)
