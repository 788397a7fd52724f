"""Tensors of a dump of the graph engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ait_llm.core import DType
from ait_llm.dumps.ge_tables import Recorded
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, measure
from ait_llm.formats.elements import Array
from ait_llm.formats.ge_file import GeFile, GeTensor
from ait_llm.formats.ge_types import ge_format_name, ge_type_name
from ait_llm.formats.ge_values import ge_payload, ge_raw, ge_stored, ge_values
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class GeDumpTensor:
    """A tensor of a dump file, or a row of a table; see :class:`ait_llm.dumps.model.Tensor`.

    Attributes:
        file: the dump file, or the table if there are only statistics.
        source: the header of the dump file; None for a row, and for a file that cannot be read.
        stored: the tensor in it.
        recorded: the row; None without one.
        failure: why the file cannot be read, None if it can.
    """

    role: Role
    index: int
    file: str
    source: GeFile | None = field(repr=False, compare=False)
    stored: GeTensor | None = field(repr=False, compare=False)
    recorded: Recorded | None = field(default=None, repr=False, compare=False)
    failure: FormatError | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``."""
        return f"{self.role}tensor{self.index}"

    @property
    def ir_name(self) -> None:
        """Dump files do not name tensors."""
        return

    @property
    def phase(self) -> Phase:
        """Inputs are taken before the operator runs, outputs after it."""
        return "before" if self.role == "in" else "after"

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.file)

    @property
    def dtype(self) -> DType:
        """Logical element type; UNDEFINED for one that has no values.

        Raises:
            FormatError: the file cannot be read.
        """
        return self._known().dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical dims where they were recorded, else the stored ones.

        Raises:
            FormatError: the file cannot be read.
        """
        return self._known().shape

    @property
    def format(self) -> int:
        """Layout in which the elements are stored, a code of ``formats.ge_types``.

        Raises:
            FormatError: the file cannot be read.
        """
        return self._known().format

    @property
    def type_name(self) -> str:
        """Name of the element type, also of one that has no values, such as ``hifloat4``.

        Raises:
            FormatError: the file cannot be read.
        """
        known = self._known()
        return (
            known.dtype.label if isinstance(known, Recorded) else ge_type_name(known.described.type)
        )

    @property
    def format_name(self) -> str:
        """Name of :attr:`format`.

        Raises:
            FormatError: the file cannot be read.
        """
        return ge_format_name(self._known().format)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Dims of the stored elements.

        Raises:
            FormatError: the file cannot be read.
        """
        known = self._known()
        return known.shape if isinstance(known, Recorded) else known.described.shape

    @property
    def original_op(self) -> tuple[str, int] | None:
        """Name and output of the operator before fusion that made this; None if not recorded."""
        original = self.stored.described.original if self.stored is not None else None
        return (original.name, original.output) if original is not None and original.name else None

    @property
    def problem(self) -> str | None:
        """Why there are no values, as a clause; None if there are."""
        if self.failure is not None:
            return self.failure.reason
        return self.stored.problem if self.stored is not None else "only its statistics were saved"

    @property
    def has_data(self) -> bool:
        """True if the values can be read."""
        return self.problem is None

    @property
    def statistics(self) -> Statistics | None:
        """Recorded statistics, else computed from the values; None for complex or absent values.

        Raises:
            FormatError: the values are of a layout that is not converted.
        """
        if self.recorded is not None:
            return self.recorded.statistics
        if not self.has_data:
            return None
        array = self.nd()
        return None if array.dtype.kind == "c" else measure(array)

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values in the dims in which they are stored; large ones are mapped where possible.

        Raises:
            FormatError: there are none, or they cannot be represented.
        """
        return ge_stored(*self._readable())

    def payload(self) -> Payload | None:
        """Where the values lie; None if there are none.

        Raises:
            FormatError: the file is a link that leaves the dump.
        """
        if not self.has_data or self.source is None or self.stored is None:
            return None
        return ge_payload(self.source, self.stored)

    def nd(self) -> Array:
        """The values in row-major order of the logical dims, private layouts restored.

        Raises:
            FormatError: as :meth:`numpy`, or the layout is not converted.
        """
        return ge_values(*self._readable())

    def raw(self) -> Array:
        """All bytes of the tensor, whatever its type.

        Raises:
            FormatError: the file does not hold them.
        """
        if self.source is None or self.stored is None:
            raise self._refusal()
        return ge_raw(self.source, self.stored)

    def torch(self) -> torch.Tensor:
        """The values in logical dims, as a CPU tensor of the same element type.

        Raises:
            FormatError: as :meth:`nd`.
            MissingDependencyError: torch is not installed.
        """
        return LoadedTensor(self.nd(), self.dtype).torch()

    def _known(self) -> GeTensor | Recorded:
        if self.stored is not None:
            return self.stored
        if self.recorded is not None:
            return self.recorded
        raise self._refusal()

    def _readable(self) -> tuple[GeFile, GeTensor]:
        if self.source is None or self.stored is None:
            raise self._refusal()
        return self.source, self.stored

    def _refusal(self) -> FormatError:
        return self.failure or FormatError(
            self.path, "holds only statistics", 'Dump with dump_data="tensor"'
        )
