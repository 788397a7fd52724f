"""The edges of a pass, for who draws it: a flow without its values and tensors."""

from __future__ import annotations

from typing import Literal

from ait_llm.core.dataflow import Dataflow
from ait_llm.program.describe import is_float
from ait_llm.program.flow import Flow
from ait_llm.program.roles import is_operator


def dataflow_of(side: Literal["golden", "mine"], flow: Flow) -> Dataflow:
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
