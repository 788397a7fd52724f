"""The records of operations and their kernels; every reader yields these classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ait_llm.core import OpId
from ait_llm.dumps.lazy import NOTHING
from ait_llm.dumps.tensors import Phase, Role, Tensor

if TYPE_CHECKING:
    from ait_llm.dumps.api_values import ApiValue
    from ait_llm.dumps.engine_operator import EngineOperator
    from ait_llm.dumps.fx_kernels import KernelLaunch
    from ait_llm.dumps.fx_nodes import GraphNode, GraphValue

_PHASES: tuple[Phase, ...] = ("before", "after")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one operation launched on the device.

    Attributes:
        index: place among the launches of its operation.
        name: of the kernel.
        location: its folder.
        tensors: phase before first, inputs before outputs.
        tiling: files that its tiling data may lie in.
    """

    index: int
    name: str
    location: str
    tensors: Sequence[Tensor] = field(default=(), repr=False, compare=False)
    tiling: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.location)

    @property
    def tiling_path(self) -> Path | None:
        """The raw tiling data that was passed to the kernel, None if not captured."""
        return next((path for path in map(Path, self.tiling) if path.is_file()), None)


class Facts:
    """What only some captures know of an operation; read when it is asked for.

    A subclass has what its capture knows; see the properties of :class:`Operation`.
    """

    __slots__ = ()

    @property
    def full_name(self) -> str:
        """Name with what file names cannot hold; empty if that is its name."""
        return ""

    @property
    def direction(self) -> str:
        """Direction of an API call."""
        return ""

    @property
    def level(self) -> str:
        """Level of an API capture."""
        return ""

    @property
    def stack(self) -> tuple[str, ...] | None:
        """The frames that led to it."""
        return None

    @property
    def parent(self) -> str | None:
        """Name of the module call in which it was made."""
        return None

    @property
    def scope(self) -> tuple[str, ...]:
        """Names of the module calls around it."""
        return ()

    @property
    def values(self) -> Sequence[ApiValue]:
        """All arguments and results as recorded."""
        return ()

    @property
    def in_graph(self) -> bool:
        """True for an operator of a compiled graph, whose kernel may keep more digits."""
        return False


class InGraph(Facts):
    """What is known of an operator that reported from within a compiled graph."""

    __slots__ = ()

    @property
    def in_graph(self) -> bool:
        """It is."""
        return True


NO_FACTS = Facts()
IN_GRAPH = InGraph()


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One execution of a compiled graph; shared by its operations.

    Attributes:
        folder: where their files lie.
        graph: name of the graph as the dump has it, ``graph_1_0``; empty if it has none.
        number: N of ``graph_{N}``, None if unknown.
        step: which execution of this graph, from 0.
        counted_from: number of the first step in the folders' own count.
        time: folder of the program's run; sorts before the times of operations.
        model_id: number of the loaded model, -1 if unknown.
        model_call: number of the call of the program's model in which it ran, None if unknown.
        nodes: the graph before compilation, by name; empty where the capture did not write it down.
        sources: its inputs and constants, in the same way.
        results: what it gives back by name, where it has names for it, in the same way as nodes
            say what they read.
        tensors: values of that graph by the node or input that made them, and which result; empty
            where operations are no nodes.
    """

    folder: str
    graph: str
    number: int | None
    step: int
    counted_from: int = 0
    time: str = ""
    model_id: int = -1
    model_call: int | None = None
    nodes: Mapping[str, GraphNode] = field(default=NOTHING, repr=False, compare=False)
    sources: Mapping[str, GraphValue] = field(default=NOTHING, repr=False, compare=False)
    results: Mapping[str, tuple[str, int]] = field(default=NOTHING, repr=False, compare=False)
    tensors: Mapping[tuple[str, int], Tensor] = field(
        default_factory=dict, repr=False, compare=False
    )


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Consecutive rows of an earlier call of the same module, whose keys and values are read.

    Attributes:
        operation: that call.
        row: the first of them.
        count: how many.
    """

    operation: Operation
    row: int
    count: int


@dataclass(frozen=True, slots=True)
class Attended:
    """Rows of a call of paged attention that are consecutive tokens of one request.

    Each attends to what precedes them and to its own rows up to itself.

    Attributes:
        row: the first of them.
        count: how many.
        before: rows of earlier calls that are all tokens before them, in order.
    """

    row: int
    count: int
    before: tuple[CachedRows, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Whom a collective speaks to.

    Attributes:
        ranks: of its group, in their order.
        place: of its own process among them.
        reduction: ``SUM``, ``MAX`` and so on; empty where it adds nothing up, or it is not known.
    """

    ranks: tuple[int, ...]
    place: int
    reduction: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One execution of one operation.

    Attributes:
        name: ``LinearOperation_0_1``, or the dotted path of a torch module.
        op_id: position in the topology.
        type: ``LinearOperation``, or the name of a graph.
        step: execution count, 0-based.
        call: which call of this name within its step, 0-based.
        device, pid: the process that ran it.
        rank: its global rank, -1 if unknown.
        is_graph: True if it consists of other operations.
        location: its folder or file.
        tensors: phase before first, inputs before outputs; listed when looked at.
        params: the parameters as the tool recorded them; read when looked at.
        definition: numbers, flags and names of weights that decide what it computes.
        weights: inputs that are parameters of the model, by name.
        parameters: saved parameters and buffers by dotted name: of a module its own, of an operator
            that reads some those of its model.
        members: classes of the modules that a module consists of, by their own names.
        rounding: relative Euclidean distance that keeping weights of its module in few bits has
            cost, as the capture told without them; 0 where it did not.
        not_captured: names and reasons of values of which there is no tensor.
        kernels: in launch order.
        graph_name: the compiled graph that it belongs to; empty if none, or unknown.
        graph_step: which execution of that graph, -1 without one.
        parts: operators of the graph before fusion that it computes; empty if not fused.
        timestamp: when it ran, in the capture's own count; 0 if unknown.
        run: the execution of a compiled graph that it belongs to.
        launch: what a compiler made it of, where it is a kernel and no node.
        engine: what it is of the graph before fusion, where a graph engine ran it and that graph is
            known; of operations of a pass only.
        api_name: function or module that an API capture says was called, ``Functional.linear``;
            empty for others.
        record_name: its name in newer captures of the same tool; empty if that is :attr:`name`.
        facts: what else some captures know of it.
        forward: the call whose backward pass it is, where that was looked for.
        peers: the same collective on all ranks of its group, in their order, where that was looked
            for and all are there.
        group: of a collective, whom it speaks to, where the capture says so.
        attended: of paged attention what its rows attend to, where that was looked for; of rows
            that are in none of them it is not known.
        stands_for: ``file`` or ``weight`` where a tensor file stands in the place of an operation.
    """

    name: str
    op_id: OpId
    type: str
    step: int = 0
    call: int = 0
    device: int = -1
    pid: int = -1
    rank: int = -1
    is_graph: bool = False
    location: str = ""
    tensors: Sequence[Tensor] = field(default=(), repr=False, compare=False)
    params: Mapping[str, Any] = field(default=NOTHING, repr=False, compare=False)
    definition: Mapping[str, Any] = field(default=NOTHING, repr=False, compare=False)
    weights: Mapping[str, Any] = field(default=NOTHING, repr=False, compare=False)
    parameters: Mapping[str, Tensor] = field(default=NOTHING, repr=False, compare=False)
    members: Mapping[str, str] = field(default=NOTHING, repr=False, compare=False)
    rounding: float = field(default=0.0, repr=False, compare=False)
    not_captured: Sequence[Mapping[str, str]] = field(default=(), repr=False, compare=False)
    kernels: Sequence[Kernel] = field(default=(), repr=False, compare=False)
    graph_name: str = ""
    graph_step: int = -1
    parts: tuple[str, ...] = ()
    timestamp: int = field(default=0, compare=False)
    run: GraphRun | None = field(default=None, repr=False, compare=False)
    launch: KernelLaunch | None = field(default=None, repr=False, compare=False)
    engine: EngineOperator | None = field(default=None, repr=False, compare=False)
    api_name: str = field(default="", compare=False)
    record_name: str = field(default="", compare=False)
    facts: Facts = field(default=NO_FACTS, repr=False, compare=False)
    forward: Operation | None = field(default=None, repr=False, compare=False)
    peers: tuple[Operation, ...] = field(default=(), repr=False, compare=False)
    group: Group | None = field(default=None, repr=False, compare=False)
    attended: tuple[Attended, ...] = field(default=(), repr=False, compare=False)
    stands_for: Literal["operation", "file", "weight"] = "operation"
    _plain_inputs: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """Its folder or file."""
        return Path(self.location)

    @property
    def graph(self) -> int | None:
        """N of its compiled graph ``graph_{N}``, None without one of such a name."""
        return None if self.run is None else self.run.number

    @property
    def model_name(self) -> str:
        """Name of the compiled graph as the dump has it, ``graph_1_0``; empty without one."""
        return "" if self.run is None else self.run.graph

    @property
    def model_id(self) -> int:
        """Number of the loaded model of a graph engine, -1 if unknown."""
        return -1 if self.run is None else self.run.model_id

    @property
    def full_name(self) -> str:
        """Its name with what file names cannot hold, such as slashes and dots."""
        return self.facts.full_name or self.name

    @property
    def direction(self) -> str:
        """``forward``, ``backward``, ``parameters_grad`` or ``debug``; empty without an API."""
        return self.facts.direction

    @property
    def level(self) -> str:
        """Level of an API capture: ``L0``, ``L1``, ``mix``, ``debug``; empty if unknown."""
        return self.facts.level

    @property
    def stack(self) -> tuple[str, ...] | None:
        """The frames that led to the call, innermost first; None if none were recorded.

        Raises:
            FormatError: they cannot be read.
        """
        return self.facts.stack

    @property
    def parent(self) -> str | None:
        """Name of the module call in which it was made; None at the top or where unknown.

        Raises:
            FormatError: it cannot be read.
        """
        return self.facts.parent

    @property
    def scope(self) -> tuple[str, ...]:
        """Names of the module calls around it, the outermost first."""
        return self.facts.scope

    @property
    def values(self) -> Sequence[ApiValue]:
        """All arguments and results of an API call as recorded, tensors or not.

        Raises:
            FormatError: the record is damaged, or has changed since it was listed.
        """
        return self.facts.values

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Which of before and after were captured."""
        found = {tensor.phase for tensor in self.tensors}
        return tuple(phase for phase in _PHASES if phase in found)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs in the state before the operation where captured, else after it."""
        number = self._number_of_inputs()
        if number < 0:
            return _preferred(self.tensors, "in", "before")
        return tuple(self.tensors[:number])

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs in the state after the operation where captured, else before it."""
        number = self._number_of_inputs()
        if number < 0:
            return _preferred(self.tensors, "out", "after")
        return tuple(self.tensors[number:])

    def _number_of_inputs(self) -> int:
        """How many inputs there are if they come first, and all is there in one state; else -1."""
        found = self._plain_inputs
        if found is None:
            found = _plain_inputs(self.tensors)
            object.__setattr__(self, "_plain_inputs", found)
        return found


def _plain_inputs(tensors: Sequence[Tensor]) -> int:
    if not isinstance(tensors, tuple):
        return -1  # listed when it is looked at
    number = sum(tensor.role == "in" for tensor in tensors)
    is_sorted = all(tensor.role == "in" for tensor in tensors[:number])
    once = len({(tensor.role, tensor.index) for tensor in tensors}) == len(tensors)
    return number if is_sorted and once else -1


def _preferred(tensors: Sequence[Tensor], role: Role, phase: Phase) -> tuple[Tensor, ...]:
    found = [tensor for tensor in tensors if tensor.role == role]
    chosen: dict[int, Tensor] = {}
    for tensor in found:
        if tensor.index not in chosen or tensor.phase == phase:
            chosen[tensor.index] = tensor
    if len(chosen) == len(found):
        return tuple(found)  # each in one state, in the order of the dump
    return tuple(chosen[index] for index in sorted(chosen))
