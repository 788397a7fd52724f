"""Which executions of compiled graphs belong to one call of the model.

Where the compiler cannot take a model in one piece, or is given its layers one by one, one forward
pass runs several graphs. Our captures write down in which call of the model a graph ran. Where
nobody did (in other tools' dumps, in compiled functions, in backward passes), these tell:

- a call looks up the tokens once: what looks up the table again with which a call began begins
  another one;
- floating point values that one graph computed, and that another one is the first to read, join
  the two and whatever ran between them. What a graph has read itself before it hands it on (keys
  and values for a cache) joins nothing, neither do weights, and what is written in place;
- what looks up nothing goes with the call that has looked up something before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.program.digests import digest
from ait_llm.program.roles_fx import is_view, kind_of

if TYPE_CHECKING:
    from ait_llm.program.compiled import Execution

_LOOKS_UP = "aten.embedding"
_EXTENDING = frozenset(
    {"cat", "copy", "index_copy", "index_put", "scatter", "slice_scatter", "select_scatter"}
)
"""Their first argument may be a cache that they add to."""

_Mark = int | bytes
"""Number of the storage of a tensor, or the digest of its numbers."""


def by_call(executions: Sequence[Execution]) -> list[list[Execution]]:
    """The executions of each call of the model.

    Args:
        executions: of one process, in the order in which they began.

    Returns:
        Calls in the order in which they began.
    """
    groups: list[list[Execution]] = []
    known: dict[int, list[Execution]] = {}
    told = all(each.model_call is not None for each in executions)
    values = None if told else _Values(executions)
    for place, execution in enumerate(executions):
        call = execution.model_call
        if call is not None:
            if call not in known:
                known[call] = []
                groups.append(known[call])
            known[call].append(execution)
        elif values is not None and groups and values.goes_on(place, len(groups[-1])):
            groups[-1].append(execution)
        else:
            groups.append([execution])
    return groups


@dataclass(slots=True)
class _Made:
    """A value that a graph computed.

    Attributes:
        place: the execution that computed it.
        is_read: something has read it.
    """

    place: int
    is_read: bool = False


class _Values:
    """What executions look up, and what they hand to one another."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        self._tables = [tuple(_tables(each)) for each in executions]
        self._joined: set[int] = set()  # places that go on with what ran before them
        self._made: dict[_Mark, _Made] = {}
        self._outside: set[_Mark] = set()
        for place, each in enumerate(executions):
            for operation in each.operations:
                self._read(place, operation)
                self._write(place, operation)

    def goes_on(self, place: int, length: int) -> bool:
        """True if an execution belongs to the call before it, which has run so many graphs."""
        own = self._tables[place]
        before = [table for tables in self._tables[place - length : place] for table in tables]
        if own and before and before[0] is not None and before[0] in own:
            return False
        return place in self._joined or bool(before and not own)

    def _read(self, place: int, operation: Operation) -> None:
        written = {_storage(tensor) for tensor in operation.outputs} - {None}
        for tensor in operation.inputs:
            mark = _mark(tensor)
            made = None if mark is None else self._made.get(mark)
            if made is None:
                if mark is not None:
                    self._outside.add(mark)
                continue
            if mark in written or (written == set() and is_view(operation.type)):
                continue  # a view of it
            extends = tensor.index == 0 and kind_of(operation.type) in _EXTENDING
            if made.place < place and not made.is_read and not extends and _is_floating(tensor):
                self._joined.update(range(made.place + 1, place + 1))
            made.is_read = True

    def _write(self, place: int, operation: Operation) -> None:
        first = next((_mark(tensor) for tensor in operation.inputs), None)
        for tensor in operation.outputs:
            mark = _mark(tensor)
            if mark is None or mark in self._made or mark in self._outside:
                continue
            if not is_view(operation.type) or isinstance(mark, int):
                self._made[mark] = _Made(place)
            elif first in self._made:
                self._made[mark] = self._made[first]
            else:
                self._outside.add(mark)  # of a weight


def _tables(execution: Execution) -> Iterator[_Mark | None]:
    """Tables that an execution looks up; None for one that was not captured."""
    for operation in execution.operations:
        if operation.launch is None:
            if operation.type.startswith(_LOOKS_UP):
                yield next((_mark(tensor) for tensor in operation.inputs), None)
            continue
        nodes = {} if operation.run is None else operation.run.nodes
        for name in operation.launch.source:
            if name in nodes and nodes[name].target.startswith(_LOOKS_UP):
                yield next((_mark(each) for each in _table_of(operation, name)), None)


def _table_of(operation: Operation, node: str) -> Iterator[Tensor]:
    """The table that a kernel reads for a node, if it was captured."""
    assert operation.launch is not None
    for tensor in operation.inputs:
        if tensor.position < len(operation.launch.inputs):
            value = operation.launch.inputs[tensor.position].value
            if value is not None and (value.node, value.role, value.index) == (node, "in", 0):
                yield tensor


def _storage(tensor: Tensor) -> int | None:
    return None if tensor.identity is None else tensor.identity.storage


def _mark(tensor: Tensor) -> _Mark | None:
    """What tells a tensor again; None where equal numbers prove nothing."""
    return digest(tensor) if tensor.identity is None else tensor.identity.storage


def _is_floating(tensor: Tensor) -> bool:
    try:
        return tensor.dtype.is_floating
    except AitError:
        return False
