"""Operators and tensors of a dump of the graph engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ait_llm.core import DType, OpId
from ait_llm.dumps.ge_names import OVERFLOW_TYPE, GeName
from ait_llm.dumps.ge_place import Unit
from ait_llm.dumps.ge_tables import Recorded, read_statistics
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, measure
from ait_llm.formats.elements import Array
from ait_llm.formats.ge_file import (
    GeFile,
    GeTensor,
    ge_payload,
    ge_raw,
    ge_stored,
    ge_values,
    read_ge,
)
from ait_llm.formats.opening import contained_file
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    import torch

_NO_PARAMS: Mapping[str, str] = MappingProxyType({})


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


@dataclass(frozen=True, slots=True)
class GeOperation:
    """One execution of one operator; see :class:`ait_llm.dumps.model.Operation`.

    Attributes:
        op_id: position in the execution of its model, from 0.
        file_name: what the name of the file says.
        unit: rank, device, model and step.
        pid: stands for the process: the rank, see :class:`ait_llm.dumps.ge.GeDump`.
        file: path of the dump file; None if there are only statistics.
        table: path of the table of statistics; None without one.
        root: folder that files must not leave.
    """

    op_id: OpId
    file_name: GeName
    unit: Unit = field(repr=False)
    pid: int
    file: str | None
    table: str | None = field(repr=False)
    root: Path = field(repr=False, compare=False)
    _tensors: tuple[GeDumpTensor, ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _read: list[GeFile | FormatError] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """Name of the operator as in the file's name: slashes and dots are underscores."""
        return self.file_name.name

    @property
    def full_name(self) -> str:
        """Name of the operator in the header; :attr:`name` if the header has none."""
        header = self._header()
        found = header.description.op_name if isinstance(header, GeFile) else ""
        return found or self.name

    @property
    def type(self) -> str:
        """Operator type, such as ``MatMulV2`` or ``AutomaticBufferFusionOp``."""
        return self.file_name.type

    @property
    def step(self) -> int:
        """Number of the execution of its model."""
        return self.unit.step

    @property
    def device(self) -> int:
        """Device number, -1 if unknown."""
        return self.unit.device

    @property
    def rank(self) -> int | None:
        """Global rank, None if the tree has no such layer."""
        return self.unit.rank

    @property
    def model_name(self) -> str:
        """Name of the compiled graph, such as ``graph_1_0``; empty if unknown."""
        return self.unit.model_name

    @property
    def model_id(self) -> int:
        """Number of the loaded model, -1 if unknown."""
        return self.unit.model_id

    @property
    def graph(self) -> int | None:
        """N of ``graph_{N}``, None if the model is called otherwise."""
        return self.unit.graph

    @property
    def timestamp(self) -> int:
        """Time of the execution, microseconds since 1970."""
        return self.file_name.timestamp

    @property
    def path(self) -> Path:
        """The dump file, or the table if there are only statistics."""
        return Path(self.file or self.table or self.unit.path)

    @property
    def is_graph(self) -> bool:
        """Never: fused operators ran as one."""
        return False

    @property
    def is_overflow_debug(self) -> bool:
        """True for what the device reported about overflows, which is no operator of the model."""
        return self.type == OVERFLOW_TYPE

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Which of before and after were captured."""
        found = {tensor.phase for tensor in self.tensors}
        phases: tuple[Phase, ...] = ("before", "after")
        return tuple(phase for phase in phases if phase in found)

    @property
    def kernels(self) -> tuple[()]:
        """One operator is one kernel."""
        return ()

    @property
    def params(self) -> Mapping[str, str]:
        """Attributes in the header, as text; empty if the file cannot be read."""
        header = self._header()
        return header.description.attributes if isinstance(header, GeFile) else _NO_PARAMS

    @property
    def problem(self) -> str | None:
        """What is wrong with the file, as a clause; None if it is complete."""
        header = self._header()
        if isinstance(header, FormatError):
            return header.reason
        return header.problem if header is not None else None

    @property
    def tensors(self) -> tuple[GeDumpTensor, ...]:
        """Inputs, then outputs; the same objects each time.

        A file that cannot be read has one output, which says why.
        """
        if self._tensors is None:
            object.__setattr__(self, "_tensors", tuple(self._list()))
        assert self._tensors is not None
        return self._tensors

    @property
    def inputs(self) -> tuple[GeDumpTensor, ...]:
        """The inputs that were fed, in order."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "in")

    @property
    def outputs(self) -> tuple[GeDumpTensor, ...]:
        """The outputs, in order."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "out")

    def _header(self) -> GeFile | FormatError | None:
        """The header, or why it cannot be read; None if there is only a table."""
        if self.file is None:
            return None
        if not self._read:
            try:
                self._read.append(read_ge(contained_file(self.file, self.root)))
            except FormatError as error:
                self._read.append(error)
        return self._read[0]

    def _list(self) -> list[GeDumpTensor]:
        rows: tuple[Recorded, ...] = ()
        header = self._header()
        failure = header if isinstance(header, FormatError) else None
        if self.table is not None:
            try:
                rows = read_statistics(Path(contained_file(self.table, self.root)))
            except FormatError as error:
                failure = failure or (error if header is None else None)
        file = self.file or self.table or ""
        by_place = {(row.role, row.index): row for row in rows}
        if isinstance(header, GeFile):
            return [
                GeDumpTensor(
                    stored.described.role,
                    stored.described.index,
                    file,
                    header,
                    stored,
                    by_place.get((stored.described.role, stored.described.index)),
                )
                for stored in header.tensors
            ]
        if failure is not None and not rows:
            return [GeDumpTensor("out", 0, file, None, None, failure=failure)]
        table = self.table or file
        return [GeDumpTensor(row.role, row.index, table, None, None, row, failure) for row in rows]
