"""Tensors of two operations that answer each other: inputs with inputs, outputs with outputs."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.model import Match, SideName, Source, Unmatched, tensor_name
from ait_llm.match.shapes import align
from ait_llm.match.views import View
from ait_llm.program.one_pass import Pass

Key = tuple[int, str]  # rank of the operation, name of the tensor


@dataclass(frozen=True, slots=True)
class Placed:
    """An operation and its rank in the execution order of its process."""

    operation: Operation
    order: int

    def source(self, tensor: Tensor, views: tuple[View, ...] = ()) -> Source:
        """One of its tensors as a side of a match."""
        return Source(self.operation, tensor, self.order, views)

    def unmatched(
        self, side: SideName, tensor: Tensor, reason: str, *, lost: bool = False
    ) -> Unmatched:
        """One of its tensors as one without a partner."""
        return Unmatched(side, self.source(tensor), reason, lost)

    @property
    def tensors(self) -> Iterator[Tensor]:
        """What a comparison looks at: each input and output once."""
        yield from self.operation.inputs
        yield from self.operation.outputs


def placed(run: Pass) -> list[Placed]:
    """The operations of a run with their ranks."""
    return [
        Placed(operation, run.first_order + place) for place, operation in enumerate(run.operations)
    ]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a matcher says about a pair of operations.

    Attributes:
        rule: the matcher.
        confidence: in [0, 1].
        reason: why these two.
        ratio: of the batches, see ``shapes.batch_ratio``.
    """

    rule: str
    confidence: float = 1.0
    reason: str = ""
    ratio: int = 1

    def match(
        self,
        golden: tuple[Placed, Tensor],
        mine: tuple[Placed, Tensor],
        alternatives: tuple[str, ...] = (),
    ) -> Iterator[Match | Unmatched]:
        """Two tensors as a match, or both as unmatched where their shapes do not go together."""
        aligned = align(golden[1], mine[1], self.ratio)
        if isinstance(aligned, str):
            yield golden[0].unmatched("golden", golden[1], aligned, lost=True)
            yield mine[0].unmatched("mine", mine[1], aligned, lost=True)
            return
        reason = f"{self.reason}; {aligned.note}" if aligned.note else self.reason
        yield Match(
            golden[0].source(golden[1], aligned.golden),
            mine[0].source(mine[1], aligned.mine),
            self.rule,
            self.confidence,
            reason,
            alternatives,
        )


def match_by_index(golden: Placed, mine: Placed, finding: Finding) -> Iterator[Match | Unmatched]:
    """Pair the tensors of two operations by their positions, for matchers of one's own."""
    for role in ("in", "out"):
        one, other = (
            {tensor.index: tensor for tensor in each.tensors if tensor.role == role}
            for each in (golden, mine)
        )
        for index in sorted(one.keys() | other.keys()):
            if index not in other:
                reason = f"my {mine.operation.name} has no {role}put {index}"
                yield golden.unmatched("golden", one[index], reason)
            elif index not in one:
                reason = f"the golden {golden.operation.name} has no {role}put {index}"
                yield mine.unmatched("mine", other[index], reason)
            else:
                yield from finding.match((golden, one[index]), (mine, other[index]))


def key_of(placed: Placed, tensor: Tensor) -> Key:
    """What tells the tensors of one run apart."""
    return placed.order, tensor_name(placed.operation, tensor)


def remaining(run: Pass, answered: Set[Key]) -> Pass:
    """The run without the tensors that are in a match already; operations keep their places."""
    operations = [
        replace(
            each.operation,
            tensors=tuple(t for t in each.tensors if key_of(each, t) not in answered),
        )
        for each in placed(run)
    ]
    return replace(run, operations=operations)
