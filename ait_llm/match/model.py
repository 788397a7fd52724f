"""What a matcher gets and what it hands back.

Matchers get a run of each side that belong together and say which tensors answer each other;
pairing the runs is ``pairing``'s work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ait_llm.core import DType, Registry
from ait_llm.core.comparison import TensorRecord
from ait_llm.core.dataflow import SideName as SideName
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import FormatError
from ait_llm.match.views import View, summands
from ait_llm.naming import shown
from ait_llm.program.one_pass import Pass

if TYPE_CHECKING:
    from ait_llm.match.mapping.text import UserMapping

PROGRAMS = "programs"
"""The matcher of two passes by what they compute."""

REDUCED = "reduced over ranks"
"""Relation of what each rank brings to a sum, with the sum."""
SELF_CHECK = "self-check"
"""Relation of an operator's own input and output: it was inserted and must not change values."""


@dataclass(frozen=True, slots=True)
class Source:
    """One side of a match: a tensor and what to do to it before it is compared.

    Attributes:
        operation: what reads, writes or holds it.
        tensor: where its values come from.
        order: rank of the operation in the execution order of its process.
        views: applied in order to the tensor's row-major values.
        parameter: name of a parameter of a module, which is neither input nor output; else empty.
    """

    operation: Operation
    tensor: Tensor
    order: int
    views: tuple[View, ...] = ()
    parameter: str = ""
    _record: TensorRecord | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def record(self) -> TensorRecord:
        """How reports call it; made when somebody asks, for matches are many."""
        found = self._record
        if found is None:
            found = record_of(self.operation, self.tensor, self.order)
            if self.parameter:
                name = self.parameter
                found = replace(found, name=name, role="weight", index=0, label=name)
            object.__setattr__(self, "_record", found)
        return found

    @property
    def name(self) -> str:
        """Name of the tensor within its operation."""
        return self.parameter or tensor_name(self.operation, self.tensor)

    @property
    def place(self) -> tuple[int, bool, int]:
        """Sorts by execution order, inputs first."""
        is_input = self.operation.stands_for == "operation" and self.tensor.role == "in"
        if self.parameter:
            return self.order, True, 0
        return self.order, not is_input, self.tensor.index

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
        steps: how far one side was brought off by numbers in few bits that the other side did not
            compute with, as a relative Euclidean distance; 0 if neither was.
        relation: how the two belong together where the matcher knows several ways: ``exact``,
            ``fused``, ``via cast``, ``view input``, ``graph input``, :data:`REDUCED`, or
            :data:`SELF_CHECK`.
        rounded_to: the coarsest type that the values they were computed from were rounded to,
            where that is known; it decides the tolerance where it is coarser than both.
        without: requests whose rows the views leave out, because they read other tokens.
        in_same_steps: what one side keeps in few bits the other has as the same real numbers, so
            that weights have to agree.
    """

    golden: Source
    mine: Source
    rule: str
    confidence: float
    reason: str
    alternatives: tuple[str, ...] = ()
    uses: tuple[tuple[SideName, TensorRecord], ...] = ()
    steps: float = 0.0
    relation: str = ""
    rounded_to: DType | None = None
    without: tuple[int, ...] = ()
    in_same_steps: bool = False

    @property
    def is_self_check(self) -> bool:
        """True if both tensors are of one dump: what an operator got and what it handed on."""
        return self.relation == SELF_CHECK


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A tensor without a partner.

    Attributes:
        side: whose it is.
        source: the tensor.
        reason: why it has no partner, as a clause.
        lost: it should have one: it was found and does not fit, or was not saved.
        by_nature: it can have none, whatever the other side saved.
    """

    side: SideName
    source: Source
    reason: str
    lost: bool = False
    by_nature: bool = False

    @property
    def record(self) -> TensorRecord:
        """How reports call the tensor."""
        return self.source.record


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """Settings of the user.

    Attributes:
        op_mapping: the user's table, ATB type to torch types; None without one.
        mapping: the user's lines of patterns; None without any.
        by_value: try fingerprints of values for what nothing else matched.
        weights_from: checkpoints that stand in for weights that a side did not capture.
        settled: what matchers of more trust have paired, for the next one.
    """

    op_mapping: Mapping[str, Sequence[str]] | None = None
    mapping: UserMapping | None = None
    by_value: bool = False
    weights_from: Mapping[SideName, Path] = field(default_factory=dict)
    settled: Sequence[Match] = ()


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
