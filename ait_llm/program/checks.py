"""Calls that a program makes to look at its own inputs: is there padding, is this a first step.

A capture of calls shows them, and not what the program does then.
"""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.program.flow import Flow

_COMPARING = frozenset({f"__{each}__" for each in ("eq", "ne", "lt", "le", "gt", "ge", "contains")})
_ASKING = frozenset({"any", "all"})  # of such a result


def is_check(flow: Flow, op: int) -> bool:
    """True for a call that compares what no call makes, and with whose result none computes."""
    run = flow.run
    operation = run.operations[op]
    if operation.type not in _COMPARING or not run.traits.finished:
        return False
    given = (flow.at(op, "in", tensor.index) for tensor in operation.inputs)
    if any(each is not None and each.writes for each in given):
        return False
    return all(
        run.operations[reader].type in _ASKING and next(_readers(flow, reader), None) is None
        for reader in _readers(flow, op)
    )


def _readers(flow: Flow, op: int) -> Iterator[int]:
    """Operations that read what one makes."""
    for tensor in flow.run.operations[op].outputs:
        value = flow.at(op, "out", tensor.index)
        for use in () if value is None else value.reads:
            yield use.op
