"""One forward pass of one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ait_llm.dumps.model import NO_TRAITS, Operation, Tensor, Traits
from ait_llm.topology import Graph

if TYPE_CHECKING:
    from ait_llm.program.ge.fusion import Fusion
    from ait_llm.program.schedule import Schedule


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Requests of a batch that read other tokens than those of the other side.

    Attributes:
        requests: their numbers.
        count: how many requests the pass has, at the same places on both sides.
        length: tokens of each in this pass.
        padded: requests are rows of ``[requests, tokens]``; else one row of ``[requests]`` each.
    """

    requests: frozenset[int]
    count: int
    length: int
    padded: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass of one process.

    Attributes:
        kind: kind of the dump: ``atb``, ``torch``.
        device, pid: the process.
        step: its number within the process: 0 for the first pass (prefill), then each decode step.
        operations: what was executed, in execution order, a graph before its members.
        first_order: execution rank of the first operation within the process.
        graphs: topology of top-level operations by operation name, where the run reported it.
        model: topology of the whole model, where the run reported it.
        weights: parameters and buffers by dotted name, where the run saved them.
        fusion: what its operations are of the graph before fusion, where that graph is known.
        traits: what the dump has and others have not; asked instead of the kind.
        share: rank and number of ranks of a process that computes a share of the model, where the
            other side computes all of it in one; ``(0, 1)`` otherwise.
        peers: the same pass of the other processes that share it out.
        left_out: what is not compared of it because the runs chose other tokens there.
        schedule: which row is which token of which request, where an engine said so.
        same_rows: rows of it and of the pass that it is compared with that are the same tokens,
            where that is known of the requests; None to find out.
        row_keys: of each row of a batch, what stands for all tokens that it has read so far; empty
            where that is not known, or both sides have the same rows.
    """

    kind: str
    device: int
    pid: int
    step: int
    operations: Sequence[Operation]
    first_order: int = 0
    graphs: Mapping[str, Graph] = field(default_factory=dict)
    model: Graph | None = None
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    fusion: Fusion | None = None
    traits: Traits = NO_TRAITS
    share: tuple[int, int] = (0, 1)
    peers: tuple[Pass, ...] = ()
    left_out: LeftOut | None = None
    schedule: Schedule | None = None
    same_rows: tuple[tuple[int, int], ...] | None = None
    row_keys: tuple[int, ...] = ()

    @property
    def first_id(self) -> int:
        """Id of the first operation of the model; 0 if the run did not report it."""
        if self.model is None:
            return 0
        ids = (node.op_id.parts[0] for node in self.model.root.children if node.op_id is not None)
        return min(ids, default=0)
