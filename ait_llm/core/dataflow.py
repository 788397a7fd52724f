"""Who reads what in a pass: the edges of a program's graph, without its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

SideName: TypeAlias = Literal["golden", "mine"]


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The edges among the operations of one pass of one process.

    Operations are told by their place among those of the pass, in execution order; the operation at
    place ``n`` has the order ``first_order + n`` in its process.

    Attributes:
        side: whose pass it is.
        device, pid: the process.
        first_order: execution rank of its first operation within the process.
        parents: for each operation the place of the graph or module around it, -1 at the top.
        reads: for each operation the places of those that computed what it reads, in order.
        unwritten: for each operation whether it reads what no captured operation computed, such as
            the result of a module's own code, and no weight.
    """

    side: SideName
    device: int
    pid: int
    first_order: int
    parents: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    unwritten: tuple[bool, ...]
