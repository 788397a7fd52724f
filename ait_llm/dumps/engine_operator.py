"""What an operator that a graph engine ran is of the graph before fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ait_llm.topology.ge_graph import GeOp

TensorName = tuple[str, int]
"""A tensor of the graph: name of the operator that computes it, and which of its outputs."""


@dataclass(frozen=True, slots=True)
class EngineOperator:
    """The operators of the graph that a dumped one computes.

    Attributes:
        parts: in order; empty for one that the engine inserted.
        inputs: for each of its inputs which tensor of the graph it is; None where nothing tells.
        outputs: the same for its outputs.
        constants: operators that hold a constant which a part reads, by name.
        note: what is uncertain or unknown, as a clause; empty for a plain reading.
    """

    parts: tuple[GeOp, ...]
    inputs: tuple[TensorName | None, ...]
    outputs: tuple[TensorName | None, ...]
    constants: Mapping[str, GeOp]
    note: str = ""
