"""What paired operations take and give: which tensor of one answers which of the other.

Two programs of one library have the same operations. Where such a pair is known, its tensors are
paired directly; values and what they mean are asked only about the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ait_llm.core import DType, TensorRecord
from ait_llm.dumps.model import Role, Tensor
from ait_llm.match.model import PROGRAMS, Match, SideName, Source, Unmatched
from ait_llm.match.programs.shapes import Views
from ait_llm.program.one_pass import Pass

PortKey = tuple[int, Role, int]  # operation, input or output, index


@dataclass(frozen=True, slots=True)
class Port:
    """The tensor that answers one of a left operation.

    Attributes:
        op: right operation.
        tensor: its tensor.
        views: under which both are the same.
        confidence, reason: of the pair.
        alternatives: titles of golden operations whose tensors fit as well.
        uses: tensors that are looked at with the two, such as those that views take numbers from.
        relation, rounded_to: of the match, where the anchor knows.
    """

    op: int
    tensor: Tensor
    views: Views
    confidence: float
    reason: str
    alternatives: tuple[str, ...] = ()
    uses: tuple[tuple[SideName, TensorRecord], ...] = ()
    relation: str = ""
    rounded_to: DType | None = None


@dataclass(frozen=True, slots=True)
class Without:
    """Why nothing answers a tensor.

    Attributes:
        why: as a clause.
        by_nature: nothing could, whatever the other side saved.
    """

    why: str
    by_nature: bool = False


class Ports:
    """Pairs of operations, and of what they take and give.

    Attributes:
        places: right operation by left operation.
        ports: by tensor of the left side.
        left_reasons, right_reasons: why a tensor has no partner.
        without: side (0 or 1) and key of what can have no partner, whatever the other side saved.
        alone: operations of either side that nothing answers yet, where the others are settled;
            None where alignment may pair all.
        settles: True if names say all there is to say, and alignment is not asked.
        looked_at: side (0 or 1) and key of what is looked at with another tensor, and has no
            partner of its own.
        checks: what operators of mine got, against what they handed on.
    """

    alone: tuple[frozenset[int], frozenset[int]] | None = None

    settles: bool = False

    def __init__(self) -> None:
        self.looked_at: set[tuple[int, PortKey]] = set()
        self.places: dict[int, int] = {}
        self.ports: dict[PortKey, list[Port]] = {}
        self.left_reasons: dict[PortKey, str] = {}
        self.right_reasons: dict[PortKey, str] = {}
        self.without: set[tuple[int, PortKey]] = set()
        self.checks: list[Match] = []

    def leave(self, side: int, key: PortKey, alone: Without) -> None:
        """Say why a tensor has no partner."""
        (self.left_reasons, self.right_reasons)[side].setdefault(key, alone.why)
        if alone.by_nature:
            self.without.add((side, key))

    @property
    def leaves_open(self) -> bool:
        """True if both sides have operations that alignment may pair."""
        return self.alone is None or all(self.alone)


def key_of(op: int, tensor: Tensor) -> PortKey:
    """What tells the tensors of one program apart."""
    return op, tensor.role, tensor.index


def all_matches(golden: Pass, mine: Pass, ports: Ports) -> Iterator[Match | Unmatched]:
    """What is said of two runs by anchors alone, of which golden is the left side."""
    paired = set()
    sides: tuple[tuple[SideName, Pass, dict[PortKey, str]], ...] = (
        ("golden", golden, ports.left_reasons),
        ("mine", mine, ports.right_reasons),
    )
    yield from ports.checks
    for number, (side, run, reasons) in enumerate(sides):
        for op, operation in enumerate(run.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                key = key_of(op, tensor)
                for port in ports.ports.get(key, ()) if number == 0 else ():
                    paired |= {(0, key), (1, key_of(port.op, port.tensor))}
                    yield _match_of(Source(operation, tensor, run.first_order + op), mine, port)
                if (number, key) not in paired and key in reasons:
                    source = Source(operation, tensor, run.first_order + op)
                    by_nature = (number, key) in ports.without
                    yield Unmatched(side, source, reasons[key], by_nature=by_nature)


def _match_of(golden: Source, mine: Pass, port: Port) -> Match:
    return Match(
        replace(golden, views=port.views.left),
        Source(mine.operations[port.op], port.tensor, mine.first_order + port.op, port.views.right),
        PROGRAMS,
        port.confidence,
        port.reason,
        port.alternatives,
        port.uses,
        relation=port.relation,
        rounded_to=port.rounded_to,
    )
