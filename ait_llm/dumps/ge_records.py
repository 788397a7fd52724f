"""Operators of a dump of the graph engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ait_llm.core import OpId
from ait_llm.dumps.ge_names import OVERFLOW_TYPE, GeName
from ait_llm.dumps.ge_place import Unit
from ait_llm.dumps.ge_tables import Recorded, read_statistics
from ait_llm.dumps.ge_tensors import GeDumpTensor
from ait_llm.dumps.model import Phase
from ait_llm.errors import FormatError
from ait_llm.formats.ge_file import GeFile, read_ge
from ait_llm.formats.opening import contained_file

_NO_PARAMS: Mapping[str, str] = MappingProxyType({})


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
