"""Two runs of the graph engine that fused differently, such as with fusion on and off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from ait_llm.core import DType
from ait_llm.match.by_fusion.decoding import Decoded
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.fx_tensors import Located, elements, same_kind, shape_of
from ait_llm.match.by_fusion.graph import TensorId
from ait_llm.match.by_fusion.groups import Slot
from ait_llm.match.by_fusion.rounding import coarsest, roundings
from ait_llm.match.by_fusion.topology import source_of
from ait_llm.match.model import Match, Unmatched
from ait_llm.match.operators import Key, Placed, key_of, placed
from ait_llm.match.views import Reshape
from ait_llm.program.one_pass import Pass

RULE = "by_fusion"
_CERTAIN, _BY_PRODUCER, _BY_CAST = 1.0, 0.95, 0.9


class GeGeMatching:
    """One execution of each run.

    Args:
        golden, mine: the two runs.
    """

    def __init__(self, golden: Pass, mine: Pass) -> None:
        self._sides = placed(golden), placed(mine)
        self._golden_fusion, self._my_fusion = golden.fusion, mine.fusion
        self._covered: set[Key] = set()

    def matches(self) -> Iterator[Match | Unmatched]:
        """What is said of every tensor of both."""
        fusion = self._my_fusion
        for place, each in enumerate(self._sides[1]):
            partner = self._by_name.get(_call(each))
            if partner is not None:
                yield from self._same_name(place, each, partner)
            elif fusion is not None and fusion.decoded[place].is_known:
                yield from self._by_tensor(fusion, each, fusion.decoded[place])
            else:
                note = fusion.decoded[place].note if fusion is not None else ""
                reason = note or "golden has no operator of that name, and no graph file tells more"
                if fusion is not None and fusion.decoded[place].inserted:
                    reason = "the graph engine inserted it in this run only"
                for tensor in each.tensors:
                    yield each.unmatched("mine", tensor, reason)
        yield from self._left()

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, int], Placed]:
        return {_call(each): each for each in self._sides[0]}

    def _same_name(self, place: int, mine: Placed, golden: Placed) -> Iterator[Match | Unmatched]:
        """Operators of one name by the positions of their tensors."""
        fusion = self._my_fusion
        decoded = fusion.decoded[place] if fusion is not None else None
        for role in ("in", "out"):
            first, second = (
                {t.index: t for t in each.tensors if t.role == role} for each in (golden, mine)
            )
            for index in sorted(first.keys() | second.keys()):
                one, other = first.get(index), second.get(index)
                if one is not None and other is not None:
                    meaning = _meaning(decoded, role, index)
                    pair = (golden, one), (mine, other)
                    yield from self._match(*pair, _CERTAIN, "same name", decoded, meaning)
                elif other is not None:
                    reason = f"the golden {golden.operation.name} has no {role}put {index}"
                    yield mine.unmatched("mine", other, reason)
                elif one is not None:
                    self._covered.add(key_of(golden, one))
                    reason = f"my {mine.operation.name} has no {role}put {index}"
                    yield golden.unmatched("golden", one, reason)

    def _by_tensor(
        self, fusion: Fusion, mine: Placed, decoded: Decoded
    ) -> Iterator[Match | Unmatched]:
        """An operator that golden did not run as such, by what its tensors are in the graph."""
        for tensor in mine.tensors:
            slot = decoded.inputs[tensor.index] if tensor.role == "in" else None
            meaning = _meaning(decoded, tensor.role, tensor.index)
            if meaning is None:
                reason = decoded.note or "nothing tells which tensor of the graph it is"
                yield mine.unmatched("mine", tensor, reason)
                continue
            found = self._as_read(slot) if slot is not None else None
            confidence, why = _CERTAIN, "as golden's part reads it"
            if found is None:
                source = source_of(fusion.graph, meaning, fusion.owners)
                found = self._golden_tensors.get(meaning) or self._golden_tensors.get(source)
                confidence, why = _BY_PRODUCER, f"output {meaning[1]} of {meaning[0]}"
                if tensor.role == "out":
                    confidence = _CERTAIN
            if found is None:
                yield from self._by_cast(fusion, (mine, tensor), decoded, meaning)
                continue
            yield from self._match(found, (mine, tensor), confidence, why, decoded, meaning)

    def _by_cast(
        self, fusion: Fusion, mine: Located, decoded: Decoded, meaning: TensorId
    ) -> Iterator[Match | Unmatched]:
        """A tensor inside of golden's fused operator, by the cast of it that comes out there."""
        for reader in fusion.graph.consumers(meaning):
            cast = (reader.name, 0)
            golden = self._golden_tensors.get(cast)
            if reader.type != "Cast" or golden is None or not same_kind(golden[1], mine[1]):
                continue
            rounded = coarsest(self._roundings.get(meaning), self._roundings.get(cast))
            for each in self._match(golden, mine, _BY_CAST, f"as {cast[0]}", decoded, meaning):
                if isinstance(each, Match):
                    each = replace(each, relation="via cast", rounded_to=rounded)
                yield each
            return
        yield mine[0].unmatched("mine", mine[1], self._why_not(meaning))

    def _match(
        self,
        golden: Located,
        mine: Located,
        confidence: float,
        why: str,
        decoded: Decoded | None,
        meaning: TensorId | None,
    ) -> Iterator[Match | Unmatched]:
        counts = elements(golden[1]), elements(mine[1])
        self._covered.add(key_of(*golden))
        if None not in counts and counts[0] != counts[1]:
            reason = f"golden has {counts[0]} elements there, mine {counts[1]}"
            yield golden[0].unmatched("golden", golden[1], reason)
            yield mine[0].unmatched("mine", mine[1], reason)
            return
        shapes = shape_of(golden[1]), shape_of(mine[1])
        differ = None not in shapes and shapes[0] != shapes[1]
        views = (Reshape(shapes[1]),) if differ and shapes[1] is not None else ()
        fused = decoded is not None and decoded.is_fused
        if decoded is not None and fused:
            why = f"{why}; fused from {' + '.join(decoded.parts)}"
        yield Match(
            golden[0].source(golden[1], views),
            mine[0].source(mine[1]),
            RULE,
            confidence,
            why,
            relation="fused" if fused and mine[1].role == "out" else "exact",
            rounded_to=self._roundings.get(meaning) if meaning is not None else None,
        )

    def _as_read(self, slot: Slot) -> Located | None:
        """The tensor that golden's own run of a part read at that place."""
        return self._golden_slots.get((slot.part, slot.place))

    @cached_property
    def _golden_slots(self) -> Mapping[tuple[str, int], Located]:
        found: dict[tuple[str, int], Located] = {}
        for each, decoded in self._golden_decoded():
            for tensor in each.operation.inputs:
                slot = decoded.inputs[tensor.index]
                if slot is not None:
                    found.setdefault((slot.part, slot.place), (each, tensor))
        return found

    @cached_property
    def _golden_tensors(self) -> Mapping[TensorId, Located]:
        """Golden tensors of the graph, as they were written, else as they were first read."""
        read: dict[TensorId, Located] = {}
        written: dict[TensorId, Located] = {}
        for each, decoded in self._golden_decoded():
            for tensor in each.operation.inputs:
                slot = decoded.inputs[tensor.index]
                if slot is not None:
                    read.setdefault(slot.tensor, (each, tensor))
            for tensor in each.operation.outputs:
                meaning = decoded.outputs[tensor.index]
                if meaning is not None:
                    written.setdefault(meaning, (each, tensor))
        return read | written

    def _golden_decoded(self) -> Iterator[tuple[Placed, Decoded]]:
        if self._golden_fusion is not None:
            yield from zip(self._sides[0], self._golden_fusion.decoded, strict=True)

    def _why_not(self, meaning: TensorId) -> str:
        fusion = self._golden_fusion
        if fusion is None:
            return "golden has no operator of that name, and no graph file tells more"
        owner = fusion.owners.get(meaning[0])
        if owner is None:
            kind = fusion.graph.type_of(meaning)
            return f"golden has no file of {meaning[0]} ({kind})"
        return "golden computes it inside a fused operator, whose file does not have it"

    def _left(self) -> Iterator[Unmatched]:
        """Golden tensors that nothing answered, with the reason."""
        fusion, mine = self._golden_fusion, self._my_fusion
        for place, each in enumerate(self._sides[0]):
            parts = fusion.decoded[place].parts if fusion is not None else ()
            owned = mine is not None and any(name in mine.owners for name in parts)
            for tensor in each.tensors:
                if key_of(each, tensor) in self._covered:
                    continue
                reason = f"mine has no operator {each.operation.name}"
                if owned:
                    reason = "mine computes it inside a fused operator, whose file does not have it"
                yield each.unmatched("golden", tensor, reason)

    @cached_property
    def _roundings(self) -> Mapping[TensorId, DType]:
        if self._my_fusion is None:
            return {}
        return roundings(self._sides[1], self._my_fusion, ())


def _call(each: Placed) -> tuple[str, int]:
    return each.operation.name, each.operation.call


def _meaning(decoded: Decoded | None, role: str, index: int) -> TensorId | None:
    """What a tensor of a dumped operator is in the graph."""
    if decoded is None:
        return None
    if role == "out":
        return decoded.outputs[index]
    slot = decoded.inputs[index]
    return slot.tensor if slot is not None else None
