"""Which tensors of a graph its members read and write, by the names that the run reported."""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.core import OpId, TensorRecord
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.model import Match, Source
from ait_llm.match.operators import Finding, Placed
from ait_llm.program.one_pass import Pass
from ait_llm.topology import Graph, Node

Wire = tuple[int, str]  # top-level operation, name of the tensor in its topology


class Wiring:
    """Names of tensors in the reported topology of a run; empty where it reported none."""

    def __init__(self, run: Pass) -> None:
        self._nodes: dict[OpId, Node] = {}
        for graph in _graphs(run):
            for node, _ in graph.root.walk():
                if node.op_id is not None:
                    self._nodes[node.op_id] = node

    def wire(self, op_id: OpId, tensor: Tensor) -> Wire | None:
        """Name of a tensor of an operation; None if the topology does not say."""
        node = self._nodes.get(op_id)
        if node is None:
            return None
        names = node.inputs if tensor.role == "in" else node.outputs
        return (op_id.parts[0], names[tensor.index]) if tensor.index < len(names) else None


def _graphs(run: Pass) -> Iterator[Graph]:
    if run.model is not None:
        yield run.model
        return
    for name in {
        f"{each.type}_{each.op_id}" for each in run.operations if len(each.op_id.parts) == 1
    }:
        try:
            graph = run.graphs.get(name)
        except AitError:
            continue  # matching goes on without a topology that cannot be read
        if graph is not None:
            yield graph


class Links:
    """Matches of members, to be found again at the graphs around them.

    Args:
        golden, mine: the names of both sides.
    """

    def __init__(self, golden: Wiring, mine: Wiring) -> None:
        self._sides = golden, mine
        self._found: dict[Wire, tuple[Wire, Source, Source]] = {}

    def note(self, match: Match) -> None:
        """Remember a match of two leaves."""
        wires = [
            side.wire(OpId.parse(source.record.op_id), source.tensor)
            for side, source in zip(self._sides, (match.golden, match.mine), strict=True)
        ]
        if wires[0] is not None and wires[1] is not None:
            self._found.setdefault(wires[1], (wires[0], match.golden, match.mine))

    def inputs(self, golden: Placed, mine: Placed, finding: Finding) -> Iterator[Match]:
        """Inputs of two graphs that their members take as answering each other."""
        by_wire = {
            self._sides[0].wire(golden.operation.op_id, tensor): tensor
            for tensor in golden.operation.inputs
        }
        for tensor in mine.operation.inputs:
            wire = self._sides[1].wire(mine.operation.op_id, tensor)
            link = self._found.get(wire) if wire is not None else None
            partner = by_wire.get(link[0]) if link is not None else None
            if link is not None and partner is not None:
                yield Match(
                    golden.source(partner, link[1].views),
                    mine.source(tensor, link[2].views),
                    finding.rule,
                    finding.confidence,
                    f"as {_title(link[2].record)} within it",
                )


def _title(record: TensorRecord) -> str:
    return f"{record.name} of {record.op}"
