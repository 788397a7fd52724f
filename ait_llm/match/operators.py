"""Tensors of two operations that answer each other: inputs with inputs, outputs with outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Operation, Role, Tensor
from ait_llm.errors import FormatError
from ait_llm.match.model import Match, SideName, Source, Unmatched, record_of, tensor_name
from ait_llm.match.shapes import Aligned, align
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
        return Source(record_of(self.operation, tensor, self.order), tensor, views)

    def unmatched(self, side: SideName, tensor: Tensor, reason: str) -> Unmatched:
        """One of its tensors as one without a partner."""
        return Unmatched(side, record_of(self.operation, tensor, self.order), reason)

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


SpecialAlign = Callable[[tuple[Placed, Tensor], tuple[Placed, Tensor]], "Aligned | str | None"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a matcher says about a pair of operations.

    Attributes:
        rule: the matcher.
        confidence: in [0, 1].
        reason: why these two.
        ratio: of the batches, see ``shapes.batch_ratio``.
        special: aligns tensors that shapes alone cannot, such as caches; None leaves it to shapes.
    """

    rule: str
    confidence: float = 1.0
    reason: str = ""
    ratio: int = 1
    special: SpecialAlign | None = None

    def match(
        self,
        golden: tuple[Placed, Tensor],
        mine: tuple[Placed, Tensor],
        alternatives: tuple[str, ...] = (),
    ) -> Iterator[Match | Unmatched]:
        """Two tensors as a match, or both as unmatched where their shapes do not go together."""
        aligned = self.special(golden, mine) if self.special is not None else None
        if aligned is None:
            aligned = align(golden[1], mine[1], self.ratio)
        if isinstance(aligned, str):
            yield golden[0].unmatched("golden", golden[1], aligned)
            yield mine[0].unmatched("mine", mine[1], aligned)
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
    """Pair the tensors of two operations of one type by their positions."""
    yield from match_role("in", golden, mine, finding)
    yield from match_role("out", golden, mine, finding)


def match_role(
    role: Role, golden: Placed, mine: Placed, finding: Finding
) -> Iterator[Match | Unmatched]:
    """Pair the inputs, or the outputs, of two operations by their positions."""
    golden_at = {tensor.index: tensor for tensor in _of_role(golden.operation, role)}
    mine_at = {tensor.index: tensor for tensor in _of_role(mine.operation, role)}
    word = f"{role}put"
    for index in sorted(golden_at.keys() | mine_at.keys()):
        one, other = golden_at.get(index), mine_at.get(index)
        if one is not None and other is not None:
            yield from finding.match((golden, one), (mine, other))
        elif one is not None:
            reason = f"my {mine.operation.name} has no {word} {index}"
            yield golden.unmatched("golden", one, reason)
        elif other is not None:
            reason = f"the golden {golden.operation.name} has no {word} {index}"
            yield mine.unmatched("mine", other, reason)


def _of_role(operation: Operation, role: Role) -> Sequence[Tensor]:
    return operation.inputs if role == "in" else operation.outputs


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


def output_shapes(
    pairs: Iterable[tuple[Placed, Placed]],
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes of the first outputs of operations that belong together, for ``batch_ratio``."""
    for golden, mine in pairs:
        outputs: Sequence[Sequence[Tensor]] = (golden.operation.outputs, mine.operation.outputs)
        if all(outputs):
            try:
                yield outputs[0][0].shape, outputs[1][0].shape
            except FormatError:
                continue  # reading the values says what is wrong with the file
