"""Values that were made between what was captured: in the code of a module itself.

A capture of modules does not show the sum, the rotary embedding or the attention between two
projections. Such a value enters the capture where the next module reads it; it comes from the
program all the same, and is no input of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ait_llm.compare.origin_values import RunValues

# In names of arguments; what is called hidden states is handed from module to module.
_CACHE = re.compile(r"past|cache|(?<!hidden)_states?$")


@dataclass(frozen=True, slots=True)
class Between:
    """Code of a module between two of its members.

    Attributes:
        op: index of the module.
        before: index of the last member before it whose results agree; None at the start.
        after: index of the member that reads what it made; None at the end.
        value: what it made.
        agreeing: values that it gets or made before and that agree.
        kept: the value comes out of a cache, where any code before may have put it.
    """

    op: int
    before: int | None
    after: int | None
    value: int
    agreeing: tuple[int, ...]
    kept: bool = False


def maker(values: RunValues, value: int) -> int | None:
    """The module whose code made a value that no captured operation wrote.

    Returns:
        Index of the operation; None for what comes from outside of the program.
    """
    reads = values.flow.values[value].reads
    if not reads or values.is_weight(value):
        return None
    return values.flow.parents[reads[0].op]


def source(values: RunValues, value: int) -> int:
    """The first wrong value behind one that no captured operation wrote.

    Where a wrong input of the module whose code made it was made by no captured operation either,
    that is the one; and so on, perhaps to what came from outside of the program.

    Args:
        values: of the run.
        value: one that does not agree, which no captured operation wrote.
    """
    seen: set[int] = set()
    while value not in seen:
        seen.add(value)
        op = maker(values, value)
        wrong = [] if op is None else _wrong_inputs(values, op)
        value = next((each for each in wrong if values.producer(each) is None), value)
    return value


def between(values: RunValues, value: int) -> Between | None:
    """Where a wrong value came about, if that is in the code of a module that gets right ones.

    Args:
        values: of the run.
        value: one that does not agree, which no captured operation wrote; see :func:`source`.
    """
    op = maker(values, value)
    if op is None or _wrong_inputs(values, op):
        return None
    after = values.flow.values[value].reads[0].op
    right = _right_members(values, op, after)
    made = [each for results in right.values() for each in results]
    agreeing = [each for each in (*_inputs(values, op), *made) if _agrees(values, each)]
    known = tuple(dict.fromkeys(agreeing))
    kept = any(_CACHE.search(use.tensor.ir_name or "") for use in values.flow.values[value].reads)
    return Between(op, max(right, default=None), after, value, known, kept)


def _inputs(values: RunValues, op: int) -> list[int]:
    tensors = values.run.operations[op].inputs
    found = (values.flow.at(op, "in", tensor.index) for tensor in tensors)
    return [each.number for each in found if each is not None]


def _wrong_inputs(values: RunValues, op: int) -> list[int]:
    return [
        each
        for each in _inputs(values, op)
        if each in values.evidence and not _agrees(values, each)
    ]


def misread(values: RunValues, value: int, op: int, reader: int) -> Between | None:
    """Where a value that agrees as it was made is not what golden's reader of it reads.

    Args:
        values: of the run.
        value: the value.
        op: index of the operation that made it.
        reader: index of the operation that reads it.
    """
    around = values.flow.parents[reader]
    if around is None:
        return None
    path = [op, *values.flow.ancestors(op)]
    before = next((each for each in path if values.flow.parents[each] == around), None)
    right = _right_members(values, around, reader)
    agreeing = tuple(dict.fromkeys(each for results in right.values() for each in results))
    return Between(around, before, reader, value, agreeing)


def within(values: RunValues, op: int, value: int) -> Between:
    """The code of a module behind its members, which made a result of it."""
    inputs = dict.fromkeys(each.number for each in values.inputs(op))
    agreeing = tuple(each for each in inputs if _agrees(values, each))
    right = _right_members(values, op, len(values.run.operations))
    return Between(op, max(right, default=None), None, value, agreeing)


def _right_members(values: RunValues, op: int, end: int) -> dict[int, list[int]]:
    """Members of a module before another whose results agree, with those."""
    found: dict[int, list[int]] = {}
    for member, parent in enumerate(values.flow.parents[:end]):
        if parent != op:
            continue
        tensors = values.run.operations[member].outputs
        made = (values.flow.at(member, "out", tensor.index) for tensor in tensors)
        agreeing = [each.number for each in made if each and _agrees(values, each.number)]
        if agreeing:
            found[member] = agreeing
    return found


def _agrees(values: RunValues, value: int) -> bool:
    known = values.evidence.get(value)
    return known is not None and known.is_right
