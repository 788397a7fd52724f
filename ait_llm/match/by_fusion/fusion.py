"""What one execution of a compiled graph says about the graph before fusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ait_llm.match.by_fusion.decoding import Decoded
from ait_llm.match.by_fusion.graph import TensorId, UnfusedGraph


@dataclass(frozen=True)
class Fusion:
    """The graph before fusion, and what each dumped operator is of it.

    Attributes:
        graph: as the framework handed it over.
        decoded: for each operation of the run.
    """

    graph: UnfusedGraph
    decoded: tuple[Decoded, ...]

    @cached_property
    def owners(self) -> Mapping[str, int]:
        """Which operation of the run computed an operator of the graph, the first that did."""
        found: dict[str, int] = {}
        for place, each in enumerate(self.decoded):
            for name in each.parts:
                found.setdefault(name, place)
        return found

    def writers(self, tensor: TensorId) -> Iterator[int]:
        """Operations of the run that have a tensor among their dumped outputs."""
        yield from self._writers.get(tensor, ())

    @cached_property
    def _writers(self) -> Mapping[TensorId, list[int]]:
        found: dict[TensorId, list[int]] = {}
        for place, each in enumerate(self.decoded):
            for tensor in each.outputs:
                if tensor is not None:
                    found.setdefault(tensor, []).append(place)
        return found
