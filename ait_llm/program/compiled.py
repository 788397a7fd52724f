"""Dumps of compiled graphs: executions of one process, and the passes that they are.

A program that torch.compile compiled runs several graphs: one for prefill, one for the first
decode step, one for the others, and more where it took a model in pieces. Each counts its own
executions. A token is known by its graph and that count, or by the call of the model in which the
graph ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ait_llm.dumps.model import Dump, GraphRun, Operation, Process
from ait_llm.program.compiled_calls import by_call
from ait_llm.program.compiled_gaps import gaps
from ait_llm.program.ge.decoding import Decoded, decode, engine_operator, share_known
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import Unfused, UnfusedGraph
from ait_llm.program.ge.topology import topology_of
from ait_llm.program.one_pass import Pass
from ait_llm.program.roles_fx import computes

ENOUGH = 0.8
"""Share of names that two runs of one model have in common at least."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One call of one graph.

    Attributes:
        model: name of the compiled graph as the dump has it, ``graph_1_0``; empty if unknown.
        number: N of ``graph_{N}``, None if unknown.
        step: which call of this graph, from 0.
        begin: sorts the executions of a process by time: folder of the run, then first operation.
        operations: in execution order.
        counted_from: number of the first step in the folders' own count.
        model_call: number of the call of the program's model in which it ran, None if unknown.
    """

    model: str
    number: int | None
    step: int
    begin: tuple[str, str]
    operations: tuple[Operation, ...]
    counted_from: int = 0
    model_call: int | None = None

    @property
    def graph(self) -> str:
        """``graph_3``."""
        return f"graph_{self.number}" if self.number is not None else self.model or "the graph"

    @property
    def targets(self) -> Counter[str]:
        """What the nodes of its graph call, as far as known: of all nodes, else of those dumped.

        Without views, which one compiler leaves out and another one does not, and arithmetic with
        symbolic sizes.
        """
        first = self.operations[0].run
        if first is not None and first.nodes:
            found = [node.target for node in first.nodes.values()]
        else:
            found = [each.type for each in self.operations]
        return Counter(each for each in found if computes(each) and not each.startswith("<"))

    @property
    def title(self) -> str:
        """``graph_3 step 1``."""
        return f"{self.graph} step {self.step}"


def executions_of(dump: Dump, process: Process) -> list[Execution]:
    """The executions of one process in the order in which they began.

    Raises:
        FormatError: a folder cannot be listed.
    """
    groups: dict[str, list[Operation]] = {}
    for operation in dump.operations(device=process.device, pid=process.pid):
        folder = operation.location if operation.run is None else operation.run.folder
        groups.setdefault(folder, []).append(operation)
    return sorted(map(_execution, groups.values()), key=lambda each: each.begin)


def _execution(operations: Sequence[Operation]) -> Execution:
    first = operations[0]
    run = first.run or GraphRun(first.location, "", None, first.step)
    model = run.graph or (f"graph_{run.number}" if run.number is not None else "")
    begin = run.time, str(first.timestamp).rjust(20, "0")
    about = run.counted_from, run.model_call
    return Execution(model, run.number, run.step, begin, tuple(operations), *about)


@dataclass
class CompiledProcess:
    """One process of a dump of compiled graphs.

    Attributes:
        dump, process: where it lies.
        unfused: what is known of its graphs before fusion; of another dump where this has nothing.
        problems: what is wrong with its graphs, known when they have been looked at.
    """

    dump: Dump
    process: Process
    unfused: Unfused
    problems: list[str] = field(default_factory=list)

    @cached_property
    def executions(self) -> Sequence[Execution]:
        """In the order in which they began."""
        return executions_of(self.dump, self.process)

    @cached_property
    def calls(self) -> Sequence[Sequence[Execution]]:
        """The executions of each call of the model, in the order in which calls began.

        A graph engine's are calls of their own: what its operators were fused from is known of one
        graph at a time.
        """
        if self.dump.traits.fused:
            return [[each] for each in self.executions]
        return by_call(self.executions)

    @cached_property
    def models(self) -> Mapping[str, Sequence[Execution]]:
        """Executions of each compiled graph, in the order in which the graphs first ran."""
        found: dict[str, list[Execution]] = {}
        for each in self.executions:
            found.setdefault(each.model, []).append(each)
        return found

    @cached_property
    def _graphs(self) -> Mapping[str, UnfusedGraph]:
        """The graph file of each compiled graph, where there is one."""
        chosen = {model: self._choose(runs[0]) for model, runs in self.models.items()}
        return {model: graph for model, graph in chosen.items() if graph is not None}

    def _choose(self, execution: Execution) -> UnfusedGraph | None:
        """The graph of the number in the model's name, or the one that explains most operators."""
        rank = execution.operations[0].rank
        graphs = [
            graph
            for graph in self.unfused.graphs
            if rank < 0 or graph.rank is None or graph.rank == rank
        ]
        if not graphs:
            return None
        share, best = -1.0, graphs[0]
        for graph in sorted(graphs, key=lambda each: not _is_numbered(each, execution)):
            if share >= ENOUGH and not _is_numbered(graph, execution):
                break
            explained = share_known(self._decode(execution, graph))
            if explained > share:
                share, best = explained, graph
        if share < ENOUGH:
            self.problems.append(
                f"{best.title} explains {share:.0%} of the operators of "
                f"{execution.model or 'the dump'} only; it is probably of another run"
            )
        return best

    def _decode(self, execution: Execution, graph: UnfusedGraph) -> list[Decoded]:
        return decode(execution.operations, graph, self.unfused.chains)

    def number_of(self, model: str) -> int | None:
        """N of ``graph_{N}``, from the model's name or its graph file."""
        number = self.models[model][0].number
        graph = self._graphs.get(model)
        return number if number is not None or graph is None else graph.number

    @property
    def numbers(self) -> frozenset[int | None]:
        """N of each ``graph_{N}`` that it has data of; None among them if one is not known."""
        return frozenset(map(self.number_of, self.models))

    @property
    def compiled(self) -> frozenset[int]:
        """N of each graph that this dump has a file of."""
        rank = self.executions[0].operations[0].rank if self.executions else -1
        return frozenset(
            graph.number
            for graph in self.unfused.graphs
            if graph.number is not None and (rank < 0 or graph.rank in (None, rank))
        )

    @property
    def gaps(self) -> Sequence[str]:
        """What executions lack that others of the same graph have; a ledger tells it better."""
        if self.process.ledger is not None:
            return ()
        by_tensor = not self.dump.traits.fused
        return [text for runs in self.models.values() for text in gaps(runs, by_tensor=by_tensor)]

    def nodes(self, model: str, *, of_fx: bool) -> frozenset[str]:
        """Names that runs of one model have in common.

        Args:
            model: a compiled graph of this process.
            of_fx: names of FX nodes, else names of operators of the graph engine.
        """
        graph = self._graphs.get(model)
        if graph is not None:
            return graph.fx_nodes if of_fx else frozenset(graph.graph.by_name)
        operations = self.models[model][0].operations
        # A kernel that a compiler made counts for the nodes that it fused.
        names = (each.parts or (each.name,) for each in operations)
        return frozenset(name for each in names for name in each)

    def views(self, model: str) -> frozenset[str]:
        """FX nodes of a graph that compute no values; the graph engine has few of them."""
        if model in self._graphs:
            return frozenset()
        operations = self.models[model][0].operations
        return frozenset(each.name for each in operations if not computes(each.type))

    def results(self, model: str) -> frozenset[str]:
        """Names of what a graph gives back, where it has any: fusing nodes leaves these alone."""
        runs = (each.run for each in self.models[model][0].operations)
        return frozenset(next((run.results for run in runs if run is not None), ()))

    def run(self, execution: Execution, token: int) -> Pass:
        """An execution as a pass.

        Args:
            execution: of this process.
            token: its place among the executions of the program.
        """
        graph = self._graphs.get(execution.model)
        decoded = () if graph is None else tuple(self._decode(execution, graph))
        operations = _placed(execution, token, graph, decoded)
        fusion = None if graph is None else Fusion(graph, decoded, operations)
        return Pass(
            self.dump.kind,
            self.process.device,
            self.process.pid,
            token,
            operations,
            self._first_order[id(execution)],
            model=None if fusion is None else topology_of(fusion),
            fusion=fusion,
            traits=self.dump.traits,
        )

    @property
    def passes(self) -> list[Pass]:
        """The calls of the model as passes, numbered from 0."""
        return [self._call(each, number) for number, each in enumerate(self.calls)]

    def _call(self, executions: Sequence[Execution], number: int) -> Pass:
        """The graphs of one call as one pass, one behind the other."""
        runs = [self.run(each, number) for each in executions]
        if len(runs) == 1:
            return runs[0]
        calls: Counter[str] = Counter()
        operations = []
        for operation in (operation for run in runs for operation in run.operations):
            operations.append(replace(operation, call=calls[operation.name]))
            calls[operation.name] += 1
        return replace(runs[0], operations=operations)

    @cached_property
    def _first_order(self) -> Mapping[int, int]:
        """How many operations ran before each execution."""
        found, count = {}, 0
        for each in self.executions:
            found[id(each)] = count
            count += len(each.operations)
        return found


def _is_numbered(graph: UnfusedGraph, execution: Execution) -> bool:
    return graph.number == execution.number is not None


def _placed(
    execution: Execution, token: int, graph: UnfusedGraph | None, decoded: Sequence[Decoded]
) -> list[Operation]:
    """The operations of an execution with their place in the program."""
    calls: Counter[str] = Counter()
    placed = []
    for place, operation in enumerate(execution.operations):
        found = decoded[place] if graph is not None else None
        chain = found.parts if found is not None and found.is_fused else ()
        placed.append(
            replace(
                operation,
                step=token,
                call=calls[operation.name],
                parts=chain or operation.parts,  # kernels of a compiler tell
                engine=None if graph is None or found is None else engine_operator(graph, found),
                graph_name=execution.model,
                graph_step=execution.step,
            )
        )
        calls[operation.name] += 1
    return placed
