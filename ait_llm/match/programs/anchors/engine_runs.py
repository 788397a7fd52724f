"""Two runs of the graph engine that fused differently, such as with fusion on and off.

Every tensor has keys: the operator that was dumped and its place there, the part of it that reads
it, and which tensor of the graph before fusion it is. The first key that both sides know pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.match.operators import Placed, placed
from ait_llm.match.programs.anchors.node_tensors import elements, same_kind, shape_of
from ait_llm.match.programs.anchors.ports import Port, Ports, Without, key_of
from ait_llm.match.programs.shapes import Views
from ait_llm.match.views import Reshape
from ait_llm.program.ge.graph import TensorId, source_of
from ait_llm.program.ge.rounding import roundings
from ait_llm.program.lineage import coarsest
from ait_llm.program.one_pass import Pass

_CERTAIN, _BY_PRODUCER, _BY_CAST = 1.0, 0.95, 0.9
_NAMELESS = "golden has no operator of that name, and no graph file tells more"


@dataclass(frozen=True, slots=True)
class _Claim:
    """One key under which golden may know a tensor of mine.

    Attributes:
        key: what it is there.
        confidence, why: of the pair.
        cast: the tensor of the graph, if it is a cast of the one looked for.
    """

    key: Hashable
    confidence: float
    why: str
    cast: TensorId | None = None


class EngineRuns(Ports):
    """Pairs of tensors of one execution of each run.

    Args:
        golden, mine: the two runs, left and right.
    """

    def __init__(self, golden: Pass, mine: Pass) -> None:
        super().__init__()
        self._sides = placed(golden), placed(mine)
        self._golden_fusion, self._my_fusion = golden.fusion, mine.fusion
        for place, each in enumerate(self._sides[1]):
            for tensor in each.tensors:
                self._pair(place, each, tensor)
        self._leave_golden()

    def _pair(self, place: int, each: Placed, tensor: Tensor) -> None:
        for claim in self._claims(place, each, tensor):
            golden = self._golden.get(claim.key)
            if golden is not None and (claim.cast is None or same_kind(golden[1], tensor)):
                self._add(golden, place, tensor, claim)
                return
        self.leave(1, key_of(place, tensor), self._why_alone(place, each, tensor))

    def _claims(self, place: int, each: Placed, tensor: Tensor) -> Iterator[_Claim]:
        """What a tensor of mine is, the surest first."""
        yield _Claim(_named(each, tensor), _CERTAIN, "same name")
        fusion = self._my_fusion
        meaning = fusion.meaning(place, tensor) if fusion is not None else None
        if fusion is None or meaning is None:
            return
        slot = fusion.decoded[place].inputs[tensor.index] if tensor.role == "in" else None
        if slot is not None:
            yield _Claim((slot.part, slot.place, "in"), _CERTAIN, "as golden's part reads it")
        confidence = _BY_PRODUCER if slot is not None else _CERTAIN
        for known in (meaning, source_of(fusion.graph, meaning, fusion.owners)):
            yield _Claim(known, confidence, f"output {meaning[1]} of {meaning[0]}")
        # inside of golden's fused operator: by the cast of it that comes out there
        for reader in fusion.graph.consumers(meaning):
            if reader.type == "Cast":
                cast = (reader.name, 0)
                yield _Claim(cast, _BY_CAST, f"as {reader.name}", cast)

    @cached_property
    def _golden(self) -> Mapping[Hashable, tuple[int, Tensor]]:
        """Golden tensors by their keys; one of the graph where it was written, else first read."""
        read: dict[Hashable, tuple[int, Tensor]] = {}
        written: dict[Hashable, tuple[int, Tensor]] = {}
        fusion = self._golden_fusion
        for place, each in enumerate(self._sides[0]):
            for tensor in each.tensors:
                located = (place, tensor)
                written[_named(each, tensor)] = located
                meaning = fusion.meaning(place, tensor) if fusion is not None else None
                if fusion is None or meaning is None:
                    continue
                if tensor.role == "out":
                    written.setdefault(meaning, located)
                    continue
                read.setdefault(meaning, located)
                slot = fusion.decoded[place].inputs[tensor.index]
                if slot is not None:
                    read.setdefault((slot.part, slot.place, "in"), located)
        return read | written

    def _add(self, golden: tuple[int, Tensor], place: int, tensor: Tensor, claim: _Claim) -> None:
        counts = elements(golden[1]), elements(tensor)
        if None not in counts and counts[0] != counts[1]:
            reason = f"golden has {counts[0]} elements there, mine {counts[1]}"
            self.left_reasons[key_of(*golden)] = reason
            self.right_reasons[key_of(place, tensor)] = reason
            return
        shapes = shape_of(golden[1]), shape_of(tensor)
        differ = None not in shapes and shapes[0] != shapes[1]
        views = (Reshape(shapes[1]),) if differ and shapes[1] is not None else ()
        why, relation, rounded = claim.why, "exact", None
        if self._my_fusion is not None:
            decoded, meaning = (
                self._my_fusion.decoded[place],
                self._my_fusion.meaning(place, tensor),
            )
            if decoded.is_fused:
                why = f"{why}; fused from {' + '.join(decoded.parts)}"
                relation = "fused" if tensor.role == "out" else "exact"
            rounded = None if meaning is None else self._roundings.get(meaning)
        if claim.cast is not None:
            relation, rounded = "via cast", coarsest(rounded, self._roundings.get(claim.cast))
        port = Port(
            place,
            tensor,
            Views(views, ()),
            claim.confidence,
            why,
            relation=relation,
            rounded_to=rounded,
        )
        self.ports.setdefault(key_of(*golden), []).append(port)

    def _why_alone(self, place: int, each: Placed, tensor: Tensor) -> Without:
        """Why golden has no counterpart of a tensor of mine."""
        mine, golden = self._my_fusion, self._golden_fusion
        if _call(each) in self._calls[0]:
            why = f"the golden {each.operation.name} has no {tensor.role}put {tensor.index}"
            return Without(why)
        if mine is None:
            return Without(_NAMELESS)
        decoded, meaning = mine.decoded[place], mine.meaning(place, tensor)
        if decoded.inserted:
            return Without("the graph engine inserted it in this run only", by_nature=True)
        if meaning is None:
            nothing = "nothing tells which tensor of the graph it is"
            return Without(decoded.note or (nothing if decoded.is_known else _NAMELESS))
        if golden is None:
            return Without(_NAMELESS)
        if meaning[0] not in golden.owners:
            return Without(f"golden has no file of {meaning[0]} ({golden.graph.type_of(meaning)})")
        why = "golden computes it inside a fused operator, whose file does not have it"
        return Without(why, by_nature=True)

    def _leave_golden(self) -> None:
        """Say why nothing answered the other golden tensors."""
        for place, each in enumerate(self._sides[0]):
            is_there = _call(each) in self._calls[1]
            alone = Without(f"mine has no operator {each.operation.name}")
            if not is_there and self._is_in_mine(place):
                why = "mine computes it inside a fused operator, whose file does not have it"
                alone = Without(why, by_nature=True)
            for tensor in each.tensors:
                if is_there:
                    why = f"my {each.operation.name} has no {tensor.role}put {tensor.index}"
                    alone = Without(why)
                self.leave(0, key_of(place, tensor), alone)

    def _is_in_mine(self, place: int) -> bool:
        golden, mine = self._golden_fusion, self._my_fusion
        parts = golden.decoded[place].parts if golden is not None else ()
        return mine is not None and any(name in mine.owners for name in parts)

    @cached_property
    def _calls(self) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        return {_call(each) for each in self._sides[0]}, {_call(each) for each in self._sides[1]}

    @cached_property
    def _roundings(self) -> Mapping[TensorId, DType]:
        return {} if self._my_fusion is None else roundings(self._my_fusion, lambda tensor: False)


def _call(each: Placed) -> tuple[str, int]:
    return each.operation.name, each.operation.call


def _named(each: Placed, tensor: Tensor) -> Hashable:
    return _call(each), tensor.role, tensor.index
