"""The graph that the framework handed to the graph engine, as matching needs it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ait_llm.core import DType
from ait_llm.dumps.model import Dump
from ait_llm.errors import FormatError
from ait_llm.program.ge.names import escape
from ait_llm.topology.ge_files import GeGraphFile, read_ge_graph, stream_ge_ops
from ait_llm.topology.ge_graph import FxOrigin, GeGraph, GeOp

TensorId = tuple[str, int]
"""A tensor of the graph: name of the operator that computes it, and which of its outputs."""

INPUTS = frozenset({"Data", "RefData"})
CONSTANTS = frozenset({"Const", "Constant", "ConstPlaceHolder"})
# They hand on the memory of their first input, and the engine runs nothing for them.
ALIASES = frozenset(
    {"Reshape", "Unsqueeze", "Squeeze", "Identity", "ExpandDims", "FlattenV2", "Flatten"}
)


@dataclass(frozen=True)
class UnfusedGraph:
    """Operators as they were before fusion, by name.

    Attributes:
        graph: as read.
        number: N of ``graph_{N}``, None where neither the file's name nor its content has one.
        rank: of the process that wrote it, None if unknown.
    """

    graph: GeGraph
    number: int | None = None
    rank: int | None = None

    @property
    def title(self) -> str:
        """The name of its file."""
        return self.graph.source.name if self.graph.source is not None else self.graph.name

    @cached_property
    def by_escaped(self) -> Mapping[str, tuple[str, ...]]:
        """Names by how file names write them; several where that makes them equal."""
        found: dict[str, list[str]] = {}
        for op in self.graph.ops:
            found.setdefault(escape(op.name), []).append(op.name)
        return {escaped: tuple(names) for escaped, names in found.items()}

    def op(self, name: str) -> GeOp | None:
        """An operator; None for a name that the graph does not have."""
        return self.graph.by_name.get(name)

    def type_of(self, tensor: TensorId) -> str:
        """Type of the operator that computes a tensor; empty if the graph does not have it."""
        op = self.op(tensor[0])
        return op.type if op is not None else ""

    def dtype(self, tensor: TensorId) -> DType | None:
        """Element type of a tensor; None where the graph leaves it to the engine."""
        op = self.op(tensor[0])
        return op.outputs[tensor[1]].dtype if op and tensor[1] < len(op.outputs) else None

    def origin(self, tensor: TensorId) -> FxOrigin | None:
        """The FX tensor that the graph names for a tensor."""
        op = self.op(tensor[0])
        if op is None or tensor[1] >= len(op.outputs):
            return None
        return op.outputs[tensor[1]].origin

    def consumers(self, tensor: TensorId) -> tuple[GeOp, ...]:
        """Operators that read a tensor; control edges do not count."""
        return self.graph.consumers.get(tensor, ())

    def nodes_of(self, op: GeOp) -> list[str]:
        """FX nodes that an operator computes: those of its results, or of casts of them."""
        found = [output.origin.node for output in op.outputs if output.origin is not None]
        for index in range(len(op.outputs)) if not found else ():
            for reader in self.consumers((op.name, index)):
                if reader.type == "Cast":
                    named = [each.origin for each in reader.outputs if each.origin is not None]
                    found += [origin.node for origin in named]
        return found

    @cached_property
    def fx_nodes(self) -> frozenset[str]:
        """Names of the FX nodes that the graph mentions."""
        return frozenset(
            output.origin.node
            for op in self.graph.ops
            for output in op.outputs
            if output.origin is not None
        )


def source_of(graph: UnfusedGraph, tensor: TensorId, executed: Container[str] = ()) -> TensorId:
    """The tensor whose memory a tensor has: that before reshapes that were not executed."""
    seen = {tensor}
    while graph.type_of(tensor) in ALIASES and tensor[0] not in executed:
        inputs = graph.graph.by_name[tensor[0]].inputs
        if not inputs or inputs[0] in seen:
            break
        tensor = inputs[0]
        seen.add(tensor)
    return tensor


@dataclass(frozen=True)
class Unfused:
    """What a dump knows of its graphs before fusion.

    Attributes:
        graphs: as the framework handed them over.
        chains: what the engine recorded of its own operators, see :func:`chains_of`.
        problems: what is wrong with files that cannot be read.
    """

    graphs: Sequence[UnfusedGraph]
    chains: Mapping[str, tuple[str, ...]]
    problems: Sequence[str] = ()

    @classmethod
    def of(cls, dump: Dump) -> Unfused:
        """That of a dump; nothing of one that is not of the graph engine."""
        graphs, problems = graphs_of(dump.graph_files)
        chains, also = chains_of(dump.build_graph_files)
        return cls(graphs, chains, [*problems, *also])


def read_graph(path: Path) -> UnfusedGraph:
    """Read one of the files in which torchair keeps the graphs that it compiles.

    Raises:
        FormatError: it cannot be read or is malformed.
    """
    graph = read_ge_graph(path)
    named = GeGraphFile.parse(path.name)
    number = named.number if named is not None else None
    text = graph.name.removeprefix("graph_")
    if number is None and text != graph.name and text.isdecimal() and text.isascii():
        number = int(text)
    return UnfusedGraph(graph, number, named.rank if named is not None else None)


def graphs_of(files: Sequence[Path]) -> tuple[list[UnfusedGraph], list[str]]:
    """Read graph files: the original of each graph, else what was made of it.

    Only the original surely has the operators that the engine got, with the names that torchair
    records for their tensors.

    Args:
        files: of one dump.

    Returns:
        The graphs, and what is wrong with files that cannot be read.
    """
    named = [(path, GeGraphFile.parse(path.name)) for path in files]
    named.sort(key=lambda each: each[1] is not None and each[1].stage == "optimized")
    seen: set[tuple[int | None, int | None, int | None]] = set()
    graphs, problems = [], []
    for path, name in named:
        key = (name.number, name.rank, name.pid) if name is not None else (None, None, None)
        repeated = name is not None and (name.number is not None or name.stage == "optimized")
        if repeated and key in seen:
            continue
        try:
            graphs.append(read_graph(path))
            seen.add(key)
        except FormatError as error:
            problems.append(str(error))
    return graphs, problems


def chains_of(files: Sequence[Path]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """What the engine itself recorded of its operators, by escaped name.

    Args:
        files: the graphs that it wrote after fusion.

    Returns:
        Names of the operators that each was made from, none for an inserted one; and what is
        wrong with files that cannot be read.
    """
    chains: dict[str, tuple[str, ...]] = {}
    unclear: set[str] = set()  # shortened names mean something else in each graph
    problems = []
    for path in files:
        try:
            for op in stream_ge_ops(path):
                if op.original_ops is None:
                    continue
                name = escape(op.name)
                if chains.setdefault(name, op.original_ops) != op.original_ops:
                    unclear.add(name)
        except FormatError as error:
            problems.append(str(error))
    return {name: chain for name, chain in chains.items() if name not in unclear}, problems
