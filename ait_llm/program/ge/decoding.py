"""What each dumped operator stands for in the graph: its parts, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from types import MappingProxyType

from ait_llm.dumps.engine_operator import EngineOperator
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.program.ge.graph import CONSTANTS, TensorId, UnfusedGraph
from ait_llm.program.ge.groups import Slot, boundary, fit_inputs, fit_outputs, outputs_of
from ait_llm.program.ge.names import LONG, Part, Tiler, escape, is_inserted

# Types of what the engine adds between two operators, whatever it is called.
_LAYOUT_TYPES = ("TransData", "Cast")
_MOST_COMBINATIONS = 16  # of graph operators whose names files write alike


@dataclass(frozen=True, slots=True)
class Decoded:
    """One dumped operator.

    Attributes:
        parts: operators of the graph that it computes, in order; empty if nothing tells.
        inputs: for each of its inputs what it is; None where nothing tells.
        outputs: the same for its outputs.
        inserted: the engine added it; the graph does not have it.
        note: what is uncertain or unknown, as a clause; empty for a plain reading.
    """

    parts: tuple[str, ...]
    inputs: tuple[Slot | None, ...]
    outputs: tuple[TensorId | None, ...]
    inserted: bool = False
    note: str = ""

    @property
    def is_known(self) -> bool:
        """True if the graph has its parts."""
        return bool(self.parts)

    @property
    def is_fused(self) -> bool:
        """True if it is more than one operator of the graph."""
        return len(self.parts) > 1


def decode(
    operations: Sequence[Operation],
    graph: UnfusedGraph,
    chains: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> list[Decoded]:
    """Say for each dumped operator of one execution what it stands for.

    Args:
        operations: that were dumped.
        graph: before fusion.
        chains: what the engine recorded of its operators, see :func:`graph.chains_of`; it knows
            better than their names.
    """
    names = {escape(each.name) for each in operations}
    plain = Tiler(graph.by_escaped)
    # A name that the graph cannot explain may be a part of other names.
    others = {name for name in names if not plain.readings(name)}
    tiler = Tiler(graph.by_escaped, others)
    found = []
    for each in operations:
        chain = chains.get(escape(each.name))
        recorded = _recorded(each, graph, chain) if chain is not None else None
        found.append(recorded or _decode(each, graph, tiler))
    return found


def engine_operator(graph: UnfusedGraph, decoded: Decoded) -> EngineOperator:
    """A dumped operator with the operators of the graph themselves."""
    known = graph.graph.by_name
    parts = tuple(known[name] for name in decoded.parts)
    read = {tensor[0] for op in parts for tensor in op.inputs}
    return EngineOperator(
        parts,
        tuple(None if slot is None else slot.tensor for slot in decoded.inputs),
        decoded.outputs,
        {name: known[name] for name in read if name in known and known[name].type in CONSTANTS},
        decoded.note,
    )


def share_known(decoded: Sequence[Decoded]) -> float:
    """Share of operators that the graph explains, of those that the engine did not insert."""
    counted = [each for each in decoded if not each.inserted]
    return sum(each.is_known for each in counted) / len(counted) if counted else 0.0


def _recorded(operation: Operation, graph: UnfusedGraph, chain: Sequence[str]) -> Decoded | None:
    """What the engine says of an operator; None where the graph does not have the parts."""
    counts = count_of(operation.inputs), count_of(operation.outputs)
    if not chain:
        nothing = Decoded((), (None,) * counts[0], (None,) * counts[1], inserted=True)
        return _corrected(nothing, _told(operation, graph))
    parts = [Part(escape(name)) for name in chain]
    if any(part.name not in graph.by_escaped for part in parts):
        return None
    readings = list(_read(graph, parts, counts))
    return _corrected(max(readings, key=_fits), _told(operation, graph))


def _decode(operation: Operation, graph: UnfusedGraph, tiler: Tiler) -> Decoded:
    counts = count_of(operation.inputs), count_of(operation.outputs)
    name = escape(operation.name)
    readings = [
        found
        for reading in tiler.readings(name)
        for found in _read(graph, reading, counts)
        if found.is_known
    ]
    if not readings:
        return _unreadable(operation, name, graph, counts)
    best = max(_fits(each) for each in readings)
    chosen = [each for each in readings if _fits(each) == best]
    told = _told(operation, graph)
    agreeing = [each for each in chosen if {t[0] for t in told if t is not None} <= {*each.parts}]
    found = (agreeing or chosen)[0]
    if len(agreeing or chosen) > 1:
        also = " + ".join((agreeing or chosen)[1].parts)
        found = replace(found, note=f"its name may also mean {also}")
    return _corrected(found, told)


def count_of(tensors: Sequence[Tensor]) -> int:
    """How many tensors a role has in the file, those without values counted, too."""
    return max([len(tensors), *(tensor.index + 1 for tensor in tensors)])


def _fits(found: Decoded) -> int:
    """How many of the two roles have as many tensors as the reading demands."""
    return sum(None not in role for role in (found.inputs, found.outputs))


def _read(
    graph: UnfusedGraph, reading: Sequence[Part], counts: tuple[int, int]
) -> Iterator[Decoded]:
    """What a reading of a name demands; several where names of the graph look alike in files."""
    choices = [graph.by_escaped[part.name] for part in reading if not part.inserted]
    for parts in islice(product(*choices), _MOST_COMBINATIONS):
        if not parts:
            continue
        expected = boundary(graph, parts)
        inputs = fit_inputs(graph, expected.inputs, counts[0])
        outputs = fit_outputs(expected.outputs, outputs_of(graph, parts[-1]), counts[1])
        note = ""
        if inputs is None:
            note = f"{len(expected.inputs)} inputs expected, the file has {counts[0]}"
        if None in outputs:
            text = f"{len(expected.outputs)} outputs expected, the file has {counts[1]}"
            note = f"{note}; {text}" if note else text
        yield Decoded(
            parts, inputs if inputs is not None else (None,) * counts[0], outputs, note=note
        )


def _unreadable(
    operation: Operation, name: str, graph: UnfusedGraph, counts: tuple[int, int]
) -> Decoded:
    told = _told(operation, graph)
    nothing = Decoded((), (None,) * counts[0], (None,) * counts[1])
    if name.endswith(LONG):
        first = graph.by_escaped.get(name.removesuffix(LONG), ())[:1]
        known = (*first, *(tensor[0] for tensor in told if tensor is not None))
        note = "its name is shortened, so only what the file says of its outputs is known"
        return _corrected(replace(nothing, parts=tuple(dict.fromkeys(known)), note=note), told)
    if is_inserted(name) or operation.type in _LAYOUT_TYPES:
        return _corrected(replace(nothing, inserted=True), told)
    return _corrected(replace(nothing, note=f"operator {operation.name} is not in the graph"), told)


def _told(operation: Operation, graph: UnfusedGraph) -> tuple[TensorId | None, ...]:
    """What the file itself records of the outputs; None where the graph does not have it."""
    told: list[TensorId | None] = [None] * count_of(operation.outputs)
    for tensor in operation.outputs:
        original = tensor.original_op
        if original is not None:
            for name in graph.by_escaped.get(escape(original[0]), ())[:1]:
                told[tensor.index] = (name, original[1])
    return tuple(told)


def _corrected(found: Decoded, told: Sequence[TensorId | None]) -> Decoded:
    """The file knows better than its name where its outputs come from."""
    outputs = tuple(
        known if known is not None else read
        for read, known in zip(found.outputs, told, strict=True)
    )
    return found if outputs == found.outputs else replace(found, outputs=outputs)
