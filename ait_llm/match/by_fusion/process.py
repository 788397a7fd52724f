"""One process of one side of a comparison of compiled graphs: its executions and their graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ait_llm.core import Problem
from ait_llm.dumps.model import Dump, Process
from ait_llm.match.by_fusion.decoding import decode, share_known
from ait_llm.match.by_fusion.executions import Execution, executions_of, placed_in_program
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.fx_tensors import is_view
from ait_llm.match.by_fusion.graph import UnfusedGraph
from ait_llm.match.by_fusion.topology import topology_of
from ait_llm.match.model import SideName
from ait_llm.program.one_pass import Pass

ENOUGH = 0.8
"""Share of names that two runs of one model have in common at least."""

LITTLE = 0.5
"""The same for graphs of one number."""

_SIZES = "aten.sym_"  # nodes that ask for a size


@dataclass(frozen=True)
class CompiledSide:
    """One side of the comparison.

    Attributes:
        name: golden or mine.
        dump: what lies there.
        graphs: graph files of this side, or of the other where this one has none.
        chains: what the engine recorded of its own operators, see ``graph.chains_of``.
    """

    name: SideName
    dump: Dump
    graphs: tuple[UnfusedGraph, ...]
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def other(self) -> str:
        """The other side, in words."""
        return "the golden" if self.name == "mine" else "my"


@dataclass
class CompiledProcess:
    """One process.

    Attributes:
        side: whose it is.
        process: as the dump has it.
        problems: what is wrong with its graphs.
    """

    side: CompiledSide
    process: Process
    problems: list[Problem] = field(default_factory=list)

    @cached_property
    def executions(self) -> Sequence[Execution]:
        """In the order in which they began."""
        return executions_of(self.side.dump, self.process)

    @cached_property
    def models(self) -> Mapping[str, Sequence[Execution]]:
        """Executions of each compiled graph, in the order in which the graphs first ran."""
        found: dict[str, list[Execution]] = {}
        for each in self.executions:
            found.setdefault(each.model, []).append(each)
        return found

    @cached_property
    def graphs(self) -> Mapping[str, UnfusedGraph]:
        """The graph file of each compiled graph, where there is one."""
        found = {}
        for model, executions in self.models.items():
            graph = self._choose(executions[0])
            if graph is not None:
                found[model] = graph
        return found

    def _choose(self, execution: Execution) -> UnfusedGraph | None:
        """The graph of the number in the model's name, or the one that explains most operators."""
        rank = execution.operations[0].rank
        candidates = [
            graph
            for graph in self.side.graphs
            if rank < 0 or graph.rank is None or graph.rank == rank
        ]
        if not candidates:
            return None
        numbered = [graph for graph in candidates if graph.number == execution.number is not None]
        share, graph = _best(numbered, execution, self.side.chains)
        if share < ENOUGH:
            other = _best(candidates, execution, self.side.chains)
            if other[0] > share:
                share, graph = other
        if graph is not None and share < ENOUGH:
            self.problems.append(
                Problem(
                    self.side.name,
                    f"{graph.title} explains {share:.0%} of the operators of "
                    f"{execution.model or 'the dump'} only; it is probably of another run",
                )
            )
        return graph

    def number_of(self, model: str) -> int | None:
        """N of ``graph_{N}``, from the model's name or its graph file."""
        number = self.models[model][0].number
        graph = self.graphs.get(model)
        return number if number is not None or graph is None else graph.number

    def nodes(self, model: str, *, of_fx: bool) -> frozenset[str]:
        """Names that runs of one model have in common.

        Args:
            model: a compiled graph of this process.
            of_fx: names of FX nodes, else names of operators of the graph engine.
        """
        graph = self.graphs.get(model)
        if graph is not None:
            return graph.fx_nodes if of_fx else frozenset(graph.graph.by_name)
        operations = self.models[model][0].operations
        # A kernel that a compiler made counts for the nodes that it fused.
        names = (each.parts or (each.name,) for each in operations)
        return frozenset(name for each in names for name in each)

    def views(self, model: str) -> frozenset[str]:
        """FX nodes of a graph that compute no values; the graph engine has few of them."""
        if self.graphs.get(model) is not None:
            return frozenset()
        operations = self.models[model][0].operations
        return frozenset(
            each.name for each in operations if is_view(each.type) or each.type.startswith(_SIZES)
        )

    def run(self, execution: Execution, token: int) -> Pass:
        """An execution as a run.

        Args:
            execution: of this process.
            token: its place among the executions of the program.
        """
        graph = self.graphs.get(execution.model)
        decoded = (
            tuple(decode(execution.operations, graph, self.side.chains))
            if graph is not None
            else ()
        )
        fusion = Fusion(graph, decoded) if graph is not None else None
        chains = [each.parts if each.is_fused else () for each in decoded]
        operations = placed_in_program(execution, token, chains or [()] * len(execution.operations))
        return Pass(
            self.side.dump.kind,
            self.process.device,
            self.process.pid,
            token,
            operations,
            self._first_order[id(execution)],
            model=topology_of(operations, fusion) if fusion is not None else None,
            fusion=fusion,
            traits=self.side.dump.traits,
        )

    @cached_property
    def _first_order(self) -> Mapping[int, int]:
        """How many operations ran before each execution."""
        found, count = {}, 0
        for each in self.executions:
            found[id(each)] = count
            count += len(each.operations)
        return found


def _best(
    graphs: Sequence[UnfusedGraph], execution: Execution, chains: Mapping[str, tuple[str, ...]]
) -> tuple[float, UnfusedGraph | None]:
    """The graph that explains most operators, the first of equals."""
    shares = [share_known(decode(execution.operations, graph, chains)) for graph in graphs]
    if not shares:
        return 0.0, None
    share = max(shares)
    return share, graphs[shares.index(share)]
