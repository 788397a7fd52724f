"""What a matcher gets and what it hands back.

Matchers get a run of each side that belong together and say which tensors answer each other;
pairing the runs is ``pairing``'s work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ait_llm.core import DType, Registry
from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import FormatError
from ait_llm.match.views import View, summands
from ait_llm.naming import shown
from ait_llm.program.one_pass import Pass

if TYPE_CHECKING:
    from ait_llm.match.mapping.text import UserMapping

SideName = Literal["golden", "mine"]
SELF_CHECK = "self-check"
"""Relation of an operator's own input and output: it was inserted and must not change values."""


@dataclass(frozen=True, slots=True)
class Source:
    """One side of a match: a tensor and what to do to it before it is compared.

    Attributes:
        record: how reports call it.
        tensor: where its values come from.
        views: applied in order to the tensor's row-major values.
    """

    record: TensorRecord
    tensor: Tensor
    views: tuple[View, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Whatever is read for this side: the tensor, and those that its views add to it."""
        return (self.tensor, *summands(self.views))


@dataclass(frozen=True, slots=True)
class Match:
    """A golden tensor and the one of mine that answers it.

    Attributes:
        golden, mine: the tensors.
        rule: the matcher.
        confidence: in [0, 1]; 1 for a rule that cannot be wrong, below 0.5 for ambiguous twins.
        reason: why these two, in a few words.
        alternatives: titles of other golden tensors that fit as well; not empty means ambiguous.
        uses: tensors that the views take their numbers from, such as scales and second summands,
            with their side; they are looked at with this match and need no partner of their own.
        quantised: one side computed this from int8 products that the other side has not.
        relation: how the two belong together where the matcher knows several ways: ``exact``,
            ``fused``, ``via cast``, ``view input``, ``graph input``, or :data:`SELF_CHECK`.
        rounded_to: the coarsest type that the values they were computed from were rounded to,
            where that is known; it decides the tolerance where it is coarser than both.
    """

    golden: Source
    mine: Source
    rule: str
    confidence: float
    reason: str
    alternatives: tuple[str, ...] = ()
    uses: tuple[tuple[SideName, TensorRecord], ...] = ()
    quantised: bool = False
    relation: str = ""
    rounded_to: DType | None = None

    @property
    def is_self_check(self) -> bool:
        """True if both tensors are of one dump: what an operator got and what it handed on."""
        return self.relation == SELF_CHECK


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A tensor without a partner.

    Attributes:
        side: whose it is.
        record: the tensor.
        reason: why it has no partner, as a clause.
    """

    side: SideName
    record: TensorRecord
    reason: str


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """Settings of the user.

    Attributes:
        op_mapping: the user's table, ATB type to torch types; None without one.
        mapping: the user's lines of patterns; None without any.
        by_value: try fingerprints of values for what nothing else matched.
    """

    op_mapping: Mapping[str, Sequence[str]] | None = None
    mapping: UserMapping | None = None
    by_value: bool = False


Matcher = Callable[[Pass, Pass, MatchOptions], Iterable["Match | Unmatched"]]

# Golden run first. A matcher yields what it is sure of and leaves the rest; the caller adds an
# Unmatched for every tensor that nobody mentioned.
matchers: Registry[Matcher] = Registry("matcher")


def tensor_name(operation: Operation, tensor: Tensor) -> str:
    """Name of a tensor within its operation; none for a weight, which stands for itself."""
    return "" if operation.stands_for == "weight" else tensor.name


def record_of(operation: Operation, tensor: Tensor, order: int) -> TensorRecord:
    """How reports call a tensor; dtype and shape stay None if its header cannot be read."""
    try:
        dtype, shape = tensor.dtype, tensor.shape
    except FormatError:
        dtype, shape = None, None
    return TensorRecord(
        op=operation.name,
        op_id=str(operation.op_id),
        op_type=operation.type,
        name=tensor_name(operation, tensor),
        role=tensor.role if operation.stands_for == "operation" else operation.stands_for,
        index=tensor.index,
        path=shown(tensor.file),
        label=tensor.ir_name or "",
        step=operation.step,
        call=operation.call,
        device=operation.device,
        pid=operation.pid,
        order=order,
        dtype=dtype,
        shape=shape,
        graph=operation.graph_name,
        graph_step=operation.graph_step,
        rank=operation.rank,
        parts=operation.parts,
    )
