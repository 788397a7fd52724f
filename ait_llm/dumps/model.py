"""What every dump offers, whatever tool wrote it.

Readers implement these protocols. Listing costs file names only; headers are read when a tensor's
shape or type is asked for, values when :meth:`Tensor.numpy` is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ait_llm.core import DType, OpId
from ait_llm.dumps.tensors import Identity as Identity
from ait_llm.dumps.tensors import Phase as Phase
from ait_llm.dumps.tensors import Role as Role
from ait_llm.formats import Statistics
from ait_llm.formats.elements import Array

if TYPE_CHECKING:
    import torch

    from ait_llm.dumps.ledger import Ledger, LedgerEntry

State = Literal["sealed", "unfinished", "unknown"]


class Tensor(Protocol):
    """One dumped tensor.

    Attributes:
        name: ``intensor0``, ``outtensor1``.
        role: input or output of its operation.
        index: position among the inputs or outputs.
        ir_name: the operator's own name for it (``weight``), or None.
        phase: whether it was captured before or after the operation ran.
    """

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def index(self) -> int: ...
    @property
    def ir_name(self) -> str | None: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def dtype(self) -> DType:
        """Logical element type."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Dims as the tool recorded them."""
        ...

    @property
    def format(self) -> int:
        """ATB format code."""
        ...

    @property
    def has_data(self) -> bool:
        """True if values can be read, here or in the file that this one refers to."""
        ...

    @property
    def statistics(self) -> Statistics | None:
        """Recorded statistics, else computed ones, else None (no values either)."""
        ...

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values as stored."""
        ...

    def nd(self) -> Array:
        """The values in row-major order, private device formats converted."""
        ...

    def torch(self) -> torch.Tensor:
        """The values as stored, as a CPU tensor of the same element type."""
        ...


class Kernel(Protocol):
    """What one operation launched on the device."""

    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def tensors(self) -> Sequence[Tensor]: ...


class Operation(Protocol):
    """One execution of one operation.

    Attributes:
        name: ``LinearOperation_0_1``, or the dotted path of a torch module.
        op_id: position in the topology.
        type: ``LinearOperation``, or the name of a graph.
        step: execution count, 0-based.
        device, pid: the process that ran it.
        is_graph: True if it consists of other operations.
        phases: which of before and after were captured.
        kernels: in launch order.
    """

    @property
    def name(self) -> str: ...
    @property
    def op_id(self) -> OpId: ...
    @property
    def type(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def device(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def path(self) -> Path: ...
    @property
    def is_graph(self) -> bool: ...
    @property
    def phases(self) -> tuple[Phase, ...]: ...
    @property
    def kernels(self) -> Sequence[Kernel]: ...
    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters as the library printed them; empty if it printed none."""
        ...

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All tensors: phase before first, inputs before outputs."""
        ...

    @property
    def inputs(self) -> Sequence[Tensor]:
        """Inputs in the state before the operation where captured, else after it."""
        ...

    @property
    def outputs(self) -> Sequence[Tensor]:
        """Outputs in the state after the operation where captured, else before it."""
        ...


@dataclass(frozen=True, slots=True)
class Loss:
    """Tensors that were selected and are not there.

    Attributes:
        op: id of the operation or kernel, or path of the module.
        type: its type.
        step: its execution count.
        phase: before or after.
        state: ``failed`` and ``dropped`` as the ledger says; ``missing`` if it says saved and the
            files are gone.
        tensors: how many, 0 if unknown.
        reason: why.
    """

    op: str
    type: str
    step: int
    phase: str
    state: Literal["failed", "dropped", "missing"]
    tensors: int
    reason: str


@dataclass(frozen=True, slots=True)
class Process:
    """One traced process.

    Attributes:
        device: device number, -1 if unknown.
        pid: process id.
        steps: execution counts that have tensors, ascending.
        ledger: its own account of the capture, None if the tool writes none.
        losses: what is missing.
        remarks: what else is wrong, each in a clause; for dumps whose tool keeps no ledger.
    """

    device: int
    pid: int
    steps: tuple[int, ...]
    ledger: Ledger | None
    losses: tuple[Loss, ...]
    remarks: tuple[str, ...] = ()

    @property
    def sealed(self) -> bool:
        """True if the process finished its capture and said so."""
        return self.ledger is not None and self.ledger.seal is not None

    @property
    def state(self) -> State:
        """``sealed``, ``unfinished`` (killed), or ``unknown`` without a ledger."""
        if self.ledger is None:
            return "unknown"
        return "sealed" if self.ledger.seal is not None else "unfinished"

    @property
    def end(self) -> str | None:
        """How the process ended (``exit``, ``signal 15``), None if it could not say."""
        if self.ledger is None or self.ledger.seal is None:
            return None
        return self.ledger.seal.end

    @property
    def header(self) -> Mapping[str, Any]:
        """Tool version, options and environment of the capture; empty without a ledger."""
        return self.ledger.header if self.ledger is not None else {}

    @property
    def last_operation(self) -> LedgerEntry | None:
        """The last operation in the ledger."""
        return self.ledger.last if self.ledger is not None else None

    @property
    def problem(self) -> str | None:
        """What is wrong with this process's capture, in one sentence, or None."""
        problems = []
        if self.state == "unfinished":
            last = self.last_operation
            problems.append("it did not finish its capture")
            problems.append(
                f"its last operation was {last.type} {last.op} at step {last.step}"
                if last is not None
                else "it recorded no operation"
            )
        if self.losses:
            tensors = sum(loss.tensors for loss in self.losses)
            lost = _counted(tensors, "tensor") if tensors else "tensors"  # 0: it is unknown
            problems.append(f"lost {lost} of {_counted(len(self.losses), 'operation')}")
        incidents = self.ledger.incidents if self.ledger is not None else ()
        problems += incidents[:1]
        if len(incidents) > 1:
            problems.append(f"and {len(incidents) - 1} more of that")
        problems += self.remarks
        if not problems:
            return None
        return f"process {self.pid} on device {self.device}: " + "; ".join(problems)


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A graph that the run reported.

    Attributes:
        pid: the process.
        name: operation or model name, ``DecoderLayer_0``.
        path: the JSON file.
    """

    pid: int
    name: str
    path: Path


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Dump(Protocol):
    """What one or more runs left in a folder."""

    @property
    def kind(self) -> str:
        """Name in the registry of kinds."""
        ...

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        ...

    @property
    def processes(self) -> Sequence[Process]:
        """By device, then process id."""
        ...

    @property
    def steps(self) -> tuple[int, ...]:
        """Execution counts of all processes, ascending."""
        ...

    @property
    def layers(self) -> Sequence[TopologyFile]:
        """Graphs of top-level operations that the run reported."""
        ...

    @property
    def models(self) -> Sequence[TopologyFile]:
        """Graphs of whole models that the run reported."""
        ...

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterable[Operation]:
        """Operations in execution order, a graph before its members."""
        ...

    def forget(self) -> None:
        """Let go of what was remembered of the folders; operations handed out stay usable."""
        ...
