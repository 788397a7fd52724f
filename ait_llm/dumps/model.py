"""What every dump offers, whatever tool wrote it.

Readers subclass :class:`Dump` and yield the records of ``operations`` and ``tensors``. Listing
costs file names only; headers are read when a tensor's shape or type is asked for, values when
:meth:`Tensor.numpy` is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ait_llm.dumps.operations import GraphRun, Kernel, Operation
from ait_llm.dumps.processes import Loss, Process, TopologyFile
from ait_llm.dumps.tensors import Identity, Phase, Role, Tensor
from ait_llm.dumps.views import arrow_of, frame_of, html_of, line_of

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from ait_llm.dumps.io_table import IoTable

__all__ = [
    "Dump",
    "GraphRun",
    "Identity",
    "Kernel",
    "Loss",
    "Operation",
    "Phase",
    "Process",
    "Role",
    "Tensor",
    "TopologyFile",
    "Traits",
]


@dataclass(frozen=True, slots=True)
class Traits:
    """What dumps of a kind have and others have not; asked instead of the kind.

    Attributes:
        named: users know operations by their names, not by ids.
        counted: a step counts executions of each top-level operation, so that one forward pass has
            operations of several steps; elsewhere steps are forward passes.
        compiled: operations belong to executions of compiled graphs, see ``Operation.run``.
        fused: operations are those of a graph engine, after fusion.
        library: operations are those of the acceleration library, with ids and parameters, which
            golden operators can compute again.
        dotted: what lies within an operation has a name below that of the operation.
        finished: operations are listed when they end; their ids tell when they began.
        own_code: an operation that has members computes between them as well.
        parameters: weights are no arguments, and saved beside the operations if that is asked for.
        holds: ``file``, ``files`` and ``weights`` where tensor files stand in for operations.
    """

    named: bool = False
    counted: bool = False
    compiled: bool = False
    fused: bool = False
    library: bool = False
    dotted: bool = False
    finished: bool = False
    own_code: bool = False
    parameters: bool = False
    holds: Literal["operations", "file", "files", "weights"] = "operations"


NO_TRAITS = Traits()


class Dump(ABC):
    """What one or more runs left in a folder.

    Attributes:
        kind: name in the registry of kinds; for people, consumers ask the traits.
        traits: what dumps of this kind have.
    """

    kind: str
    traits: Traits = NO_TRAITS

    @property
    @abstractmethod
    def root(self) -> Path:
        """The folder that holds everything."""

    @property
    @abstractmethod
    def processes(self) -> Sequence[Process]:
        """By device, then process id."""

    @abstractmethod
    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterable[Operation]:
        """Operations in execution order, a graph before its members."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Execution counts of all processes, ascending."""
        return tuple(sorted({step for process in self.processes for step in process.steps}))

    @property
    def layers(self) -> Sequence[TopologyFile]:
        """Graphs of top-level operations that the run reported."""
        return ()

    @property
    def models(self) -> Sequence[TopologyFile]:
        """Graphs of whole models that the run reported."""
        return ()

    @property
    def graph_files(self) -> Sequence[Path]:
        """Graphs before fusion that a graph engine's front end wrote."""
        return ()

    @property
    def graph_prints(self) -> Sequence[Path]:
        """Those graphs as Python code, which does not tell the operators that ran."""
        return ()

    @property
    def build_graph_files(self) -> Sequence[Path]:
        """Graphs after fusion that a graph engine wrote."""
        return ()

    def io_tables(self, level: Literal["operation", "kernel"] = "operation") -> Sequence[IoTable]:
        """The tables of operations or kernels that the run wrote, by process and step."""
        return ()

    def weights(self, *, device: int | None = None, pid: int | None = None) -> Iterator[Tensor]:
        """Saved parameters and buffers; the stem is the dotted name."""
        return iter(())

    def forget(self) -> None:  # noqa: B027 - most readers remember nothing
        """Let go of what was remembered of the folders; operations handed out stay usable."""

    def to_pandas(self, *, statistics: bool = False) -> pandas.DataFrame:
        """One row for each tensor, in execution order.

        Columns: ``device``, ``pid``, ``rank``, ``step``, ``op``, ``op_id``, ``op_type``, ``call``,
        ``phase``, ``role``, ``index``, ``tensor``, ``dtype``, ``shape``, the statistics ``min``,
        ``max``, ``mean``, ``l2norm`` (of finite elements), ``nan`` and ``inf`` (how many), ``path``
        and ``problem``: why there are no values, else empty.

        Args:
            statistics: compute those that were not recorded, which reads every tensor.

        Raises:
            FormatError: a ledger or folder cannot be read; a damaged file is told in its row.
            MissingDependencyError: pandas is not installed.
        """
        return frame_of(self, statistics=statistics)

    def to_arrow(self, *, statistics: bool = False) -> pyarrow.Table:
        """The same as :meth:`to_pandas`, as a table of Arrow, for Parquet, Polars or DuckDB.

        Raises:
            FormatError: as :meth:`to_pandas`.
            MissingDependencyError: pyarrow is not installed.
        """
        return arrow_of(self, statistics=statistics)

    def __repr__(self) -> str:
        return line_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)
