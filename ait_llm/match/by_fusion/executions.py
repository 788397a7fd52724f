"""Executions of compiled graphs: what one call of one graph by one process left in a dump.

A program that torch.compile compiled runs several graphs: one for prefill, one for the first
decode step, one for the others. Each counts its own executions, so that a token is known by its
graph and that count, or by its place among all executions of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Dump, GraphRun, Operation, Process


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
    """

    model: str
    number: int | None
    step: int
    begin: tuple[str, str]
    operations: tuple[Operation, ...]
    counted_from: int = 0

    @property
    def title(self) -> str:
        """``graph_3 step 1``."""
        graph = f"graph_{self.number}" if self.number is not None else self.model or "the graph"
        return f"{graph} step {self.step}"


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
    return Execution(model, run.number, run.step, begin, tuple(operations), run.counted_from)


def placed_in_program(
    execution: Execution, token: int, parts: Iterable[tuple[str, ...]]
) -> list[Operation]:
    """The operations of an execution with their place in the program.

    Their step is the place of the execution among all of the process.

    Args:
        execution: one call of one graph.
        token: its place among all executions of the process.
        parts: of each operation, where it is a fused one; empty where the dump itself may tell.
    """
    calls: Counter[str] = Counter()
    placed = []
    for operation, chain in zip(execution.operations, parts, strict=True):
        placed.append(
            replace(
                operation,
                step=token,
                call=calls[operation.name],
                parts=chain or operation.parts,  # kernels of a compiler tell
                graph_name=execution.model,
                graph_step=execution.step,
            )
        )
        calls[operation.name] += 1
    return placed
