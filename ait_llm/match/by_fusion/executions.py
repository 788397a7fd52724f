"""Executions of compiled graphs: what one call of one graph by one process left in a dump.

A program that torch.compile compiled runs several graphs: one for prefill, one for the first
decode step, one for the others. Each counts its own executions, so that a token is known by its
graph and that count, or by its place among all executions of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.core import OpId
from ait_llm.dumps.model import Dump, Kernel, Operation, Phase, Process, Tensor

KINDS = frozenset({"ge", "fx"})


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
    groups: dict[tuple[Any, ...], list[Operation]] = {}
    for operation in dump.operations(device=process.device, pid=process.pid):
        groups.setdefault(_unit(operation), []).append(operation)
    return sorted(map(_execution, groups.values()), key=lambda each: each.begin)


def _unit(operation: Any) -> tuple[Any, ...]:
    """The folder that an operation's files lie in, in whichever way its dump says so."""
    unit = getattr(operation, "unit", None)
    return (unit.path,) if unit is not None else (operation.path,)


def _execution(operations: Sequence[Any]) -> Execution:
    first = operations[0]
    number = first.graph
    model = getattr(first, "model_name", "") or (f"graph_{number}" if number is not None else "")
    unit = getattr(first, "unit", None)
    time = unit.time if unit is not None else ""
    stamp = str(first.timestamp).rjust(20, "0")
    counted_from = getattr(first, "step_directory", first.step) - first.step
    return Execution(model, number, first.step, (time, stamp), tuple(operations), counted_from)


@dataclass(frozen=True, slots=True)
class Executed:
    """An operation with its place in the program; see ``dumps.model.Operation``.

    Attributes:
        whole: as the dump has it.
        step: place of its execution among all of the process, prefill 0.
        call: which execution of this operation within the step.
        parts: operators of the unfused graph that it computes; empty where it is no fused one.
        graph_name: the compiled graph.
        graph_step: which execution of that graph.
        global_rank: of the process, -1 if unknown.
    """

    whole: Operation
    step: int
    call: int = 0
    parts: tuple[str, ...] = ()
    graph_name: str = ""
    graph_step: int = -1
    global_rank: int = -1

    @property
    def name(self) -> str:
        """As of the whole."""
        return self.whole.name

    @property
    def op_id(self) -> OpId:
        """As of the whole."""
        return self.whole.op_id

    @property
    def type(self) -> str:
        """As of the whole."""
        return self.whole.type

    @property
    def device(self) -> int:
        """As of the whole."""
        return self.whole.device

    @property
    def pid(self) -> int:
        """As of the whole."""
        return self.whole.pid

    @property
    def path(self) -> Path:
        """As of the whole."""
        return self.whole.path

    @property
    def is_graph(self) -> bool:
        """As of the whole."""
        return self.whole.is_graph

    @property
    def phases(self) -> tuple[Phase, ...]:
        """As of the whole."""
        return self.whole.phases

    @property
    def kernels(self) -> Sequence[Kernel]:
        """As of the whole."""
        return self.whole.kernels

    @property
    def params(self) -> Mapping[str, Any]:
        """As of the whole."""
        return self.whole.params

    @property
    def tensors(self) -> Sequence[Tensor]:
        """As of the whole."""
        return self.whole.tensors

    @property
    def inputs(self) -> Sequence[Tensor]:
        """As of the whole."""
        return self.whole.inputs

    @property
    def outputs(self) -> Sequence[Tensor]:
        """As of the whole."""
        return self.whole.outputs


def placed_in_program(
    execution: Execution, token: int, parts: Iterable[tuple[str, ...]]
) -> list[Executed]:
    """The operations of an execution with their place in the program.

    Args:
        execution: one call of one graph.
        token: its place among all executions of the process.
        parts: of each operation, where it is a fused one; empty where the dump itself may tell.
    """
    calls: Counter[str] = Counter()
    placed = []
    for operation, chain in zip(execution.operations, parts, strict=True):
        rank = getattr(operation, "rank", None)
        placed.append(
            Executed(
                operation,
                token,
                calls[operation.name],
                chain or getattr(operation, "parts", ()),  # kernels of a compiler tell
                execution.model,
                execution.step,
                -1 if rank is None else rank,
            )
        )
        calls[operation.name] += 1
    return placed
