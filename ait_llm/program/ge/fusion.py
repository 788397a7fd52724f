"""What one execution of a compiled graph says about the graph before fusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.program.ge.decoding import Decoded
from ait_llm.program.ge.graph import TensorId, UnfusedGraph


@dataclass(frozen=True)
class Fusion:
    """The graph before fusion, and what each dumped operator is of it.

    Attributes:
        graph: as the framework handed it over.
        decoded: for each operation of the run.
        operations: of the run.
    """

    graph: UnfusedGraph
    decoded: tuple[Decoded, ...]
    operations: Sequence[Operation]

    def meaning(self, place: int, tensor: Tensor) -> TensorId | None:
        """Which tensor of the graph a dumped one is: the key by which others know it.

        Args:
            place: of its operation.
            tensor: the dumped one.
        """
        decoded = self.decoded[place]
        if tensor.role == "out":
            return decoded.outputs[tensor.index]
        slot = decoded.inputs[tensor.index]
        return slot.tensor if slot is not None else None

    @cached_property
    def owners(self) -> Mapping[str, int]:
        """Which operation of the run computed an operator of the graph, the first that did."""
        found: dict[str, int] = {}
        for place, each in enumerate(self.decoded):
            for name in each.parts:
                found.setdefault(name, place)
        return found

    @cached_property
    def files(self) -> Mapping[TensorId, Sequence[tuple[int, Tensor]]]:
        """Where a tensor of the graph was dumped: operations of the run and their tensors."""
        found: dict[TensorId, list[tuple[int, Tensor]]] = {}
        for place, tensor, meaning in self.tensors():
            if meaning is not None:
                found.setdefault(meaning, []).append((place, tensor))
        return found

    def tensors(self) -> Iterator[tuple[int, Tensor, TensorId | None]]:
        """All dumped tensors, inputs first, with their operation and what they are."""
        for place, operation in enumerate(self.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield place, tensor, self.meaning(place, tensor)
