"""What an operator that was fused from others reads and writes.

Source: ``fusion_graph_merge`` of the graph engine. For every part in name order, each input whose
producer is outside of the group is an input of the fused operator, repeated as often as parts read
it; each output that somebody outside reads is an output. A fused operator may therefore have
outputs of parts other than the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ait_llm.program.ge.graph import CONSTANTS, TensorId, UnfusedGraph


@dataclass(frozen=True, slots=True)
class Slot:
    """One input of a dumped operator.

    Attributes:
        tensor: of the graph.
        part: operator of the graph that reads it.
        place: which of that operator's inputs it is, among those that are fed.
    """

    tensor: TensorId
    part: str
    place: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """Inputs and outputs of a group, in the order in which they are dumped."""

    inputs: tuple[Slot, ...]
    outputs: tuple[TensorId, ...]


def boundary(graph: UnfusedGraph, parts: Sequence[str]) -> Boundary:
    """What goes into a group of operators and what comes out of it.

    Args:
        graph: that has all of them.
        parts: names in order; a single one keeps outputs that nobody reads.
    """
    group = frozenset(parts)
    inputs = tuple(
        Slot(tensor, name, place)
        for name in parts
        for place, tensor in enumerate(graph.graph.by_name[name].inputs)
        if tensor[0] not in group
    )
    if len(parts) == 1:
        return Boundary(inputs, outputs_of(graph, parts[0]))
    outputs = tuple(
        tensor
        for name in parts
        for tensor in outputs_of(graph, name)
        if any(reader.name not in group for reader in graph.consumers(tensor))
    )
    return Boundary(inputs, outputs)


def outputs_of(graph: UnfusedGraph, name: str) -> tuple[TensorId, ...]:
    """All outputs of one operator of the graph."""
    return tuple((name, index) for index in range(len(graph.graph.by_name[name].outputs)))


def fit_inputs(
    graph: UnfusedGraph, expected: Sequence[Slot], count: int
) -> tuple[Slot, ...] | None:
    """The inputs that a file with that many has; None if no rule gives so many.

    An engine may feed a tensor once that several parts read, or take constants into the operator.
    """
    for inputs in _variants(graph, expected):
        if len(inputs) == count:
            return inputs
    return None


def _variants(graph: UnfusedGraph, expected: Sequence[Slot]) -> Iterator[tuple[Slot, ...]]:
    yield tuple(expected)
    first: dict[TensorId, Slot] = {}
    for slot in expected:
        first.setdefault(slot.tensor, slot)
    once = tuple(first.values())
    yield once
    yield tuple(slot for slot in expected if not _is_constant(graph, slot))
    yield tuple(slot for slot in once if not _is_constant(graph, slot))


def _is_constant(graph: UnfusedGraph, slot: Slot) -> bool:
    return graph.type_of(slot.tensor) in CONSTANTS


def fit_outputs(
    expected: Sequence[TensorId], last: Sequence[TensorId], count: int
) -> tuple[TensorId | None, ...]:
    """The outputs that a file with that many has; None for those that nothing tells.

    Args:
        expected: of the group.
        last: outputs of its last part: a single output of a file is that of the last part.
        count: outputs in the file.
    """
    if len(expected) == count:
        return tuple(expected)
    if count == 1 and last:
        return (last[0],)
    return (None,) * count
