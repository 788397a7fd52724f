"""The edges of a pass, for who draws it: a flow without its values and tensors."""

from __future__ import annotations

from ait_llm.core.dataflow import Dataflow, SideName
from ait_llm.program.describe import is_float
from ait_llm.program.flow import Flow
from ait_llm.program.program import Program
from ait_llm.program.roles import is_operator


class Flows:
    """The edges of all passes that were looked at as programs, each pass once.

    Attributes:
        found: in the order in which they were looked at.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[SideName, int, int, int], Dataflow] = {}

    @property
    def found(self) -> tuple[Dataflow, ...]:
        """The edges of each pass."""
        return tuple(self._known.values())

    def __call__(self, side: SideName, program: Program) -> None:
        """Keep the edges of one pass."""
        run = program.run
        key = side, run.device, run.pid, run.first_order
        if key not in self._known:
            self._known[key] = dataflow_of(side, program.flow)


def dataflow_of(side: SideName, flow: Flow) -> Dataflow:
    """Which operation of a pass reads what which other one computed.

    Args:
        side: whose pass it is.
        flow: its values.
    """
    operations = flow.run.operations
    reads: list[dict[int, None]] = [{} for _ in operations]
    unwritten = [False] * len(operations)
    for value in flow.values:
        writer = value.writer
        for use in value.uses:
            if use.role != "in":
                continue
            if writer is not None:
                if use.op != writer.op:
                    reads[use.op][writer.op] = None
            elif not is_operator(operations[use.op]) and is_float(use.tensor):
                unwritten[use.op] = not flow.run.traits.library  # there, weights are inputs, too
    return Dataflow(
        side=side,
        device=flow.run.device,
        pid=flow.run.pid,
        first_order=flow.run.first_order,
        parents=tuple(-1 if parent is None else parent for parent in flow.parents),
        reads=tuple(tuple(sorted(each)) for each in reads),
        unwritten=tuple(unwritten),
    )
