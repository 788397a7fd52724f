"""Operators of the graph engine against the FX nodes that they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property

from ait_llm.core import DType, TensorRecord
from ait_llm.dumps.ge_names import OVERFLOW_TYPE
from ait_llm.dumps.model import Tensor
from ait_llm.match.by_fusion.constants import number_of
from ait_llm.match.by_fusion.decoding import Decoded
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.fx_tensors import (
    FxTensors,
    Located,
    elements,
    is_number,
    is_view,
    same_kind,
    shape_of,
)
from ait_llm.match.by_fusion.graph import CONSTANTS, TensorId
from ait_llm.match.by_fusion.graph_inputs import GraphInput, find_graph_inputs
from ait_llm.match.by_fusion.groups import Slot
from ait_llm.match.by_fusion.identity import Found, Identity
from ait_llm.match.by_fusion.rounding import coarsest, roundings
from ait_llm.match.model import SELF_CHECK, Match, SideName, Source, Unmatched
from ait_llm.match.operators import Key, Placed, key_of, placed
from ait_llm.match.views import Reorder, Reshape
from ait_llm.program.one_pass import Pass

RULE = "by_fusion"
_CONSTANT = 0.9  # of a constant: an operator and its node may have other numbers besides
_UNSURE = 0.6  # of a match whose operator may be read in two ways
# What hands on the values that it gets.
_PASSING = frozenset({"TransData", "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


class GeFxMatching:
    """One execution of the graph engine and the FX execution that answers it.

    Args:
        ge, fx: the two runs.
        ge_side: which of them the graph engine's is.
    """

    def __init__(self, ge: Pass, fx: Pass, ge_side: SideName) -> None:
        self._fusion = ge.fusion
        self._operations = placed(ge)
        self._fx = FxTensors(fx)
        self._ge_side: SideName = ge_side
        self._fx_side: SideName = "golden" if ge_side == "mine" else "mine"
        self._covered: set[Key] = set()

    def matches(self) -> Iterator[Match | Unmatched]:
        """What is said of every tensor of both."""
        if self._fusion is None:
            reason = "no graph file tells which FX tensor it is"
            for each in self._operations:
                for tensor in each.tensors:
                    yield each.unmatched(self._ge_side, tensor, reason)
            return
        for each, decoded in zip(self._operations, self._fusion.decoded, strict=True):
            yield from self._operator(self._fusion, each, decoded)
        yield from self._turned()
        yield from self._left(self._fusion)

    def _operator(
        self, fusion: Fusion, each: Placed, decoded: Decoded
    ) -> Iterator[Match | Unmatched]:
        if each.operation.type == OVERFLOW_TYPE:
            for tensor in each.tensors:
                reason = "is what the device reports of overflows, no operator of the model"
                yield each.unmatched(self._ge_side, tensor, reason)
            return
        answers: list[Match | Unmatched] = []
        for tensor in each.operation.inputs:
            slot = decoded.inputs[tensor.index]
            meaning = slot.tensor if slot is not None else None
            answer = self._answer(fusion, each, decoded, tensor, meaning)
            if isinstance(answer, Unmatched) and slot is not None:
                answer = self._constant(fusion, each, decoded, tensor, slot) or answer
            answers.append(answer)
        checked: TensorRecord | None = None
        for tensor in each.operation.outputs:
            meaning = decoded.outputs[tensor.index]
            answer = self._answer(fusion, each, decoded, tensor, meaning)
            if isinstance(answer, Unmatched):
                check = self._self_check(fusion, each, decoded, tensor)
                if check is not None:
                    answer, checked = check, check.golden.record
            answers.append(answer)
        for answer in answers:
            if isinstance(answer, Match) or checked is None or answer.record != checked:
                yield answer

    def _answer(
        self,
        fusion: Fusion,
        each: Placed,
        decoded: Decoded,
        tensor: Tensor,
        meaning: TensorId | None,
    ) -> Match | Unmatched:
        if meaning is None:
            if decoded.inserted:
                reason = "is of an operator that the graph engine inserted"
            else:
                reason = decoded.note or "nothing tells which tensor of the graph it is"
            return each.unmatched(self._ge_side, tensor, reason)
        found = self._identity.find(meaning, tensor)
        if isinstance(found, str):
            return each.unmatched(self._ge_side, tensor, found)
        return self._match(fusion, each, decoded, tensor, meaning, found)

    def _constant(
        self, fusion: Fusion, each: Placed, decoded: Decoded, tensor: Tensor, slot: Slot
    ) -> Match | None:
        """A constant with the number that the FX node was given for it."""
        if fusion.graph.type_of(slot.tensor) not in CONSTANTS:
            return None
        located = number_of(fusion.graph, self._fx, each, decoded, slot)
        if located is None:
            return None
        shape = shape_of(tensor)
        views = (Reshape(shape),) if shape is not None and shape_of(located[1]) != shape else ()
        why = f"constant that {located[0].operation.name} was given"
        found = Found(located, views, "constant", _CONSTANT, why)
        return self._match(fusion, each, decoded, tensor, slot.tensor, found)

    def _match(
        self,
        fusion: Fusion,
        each: Placed,
        decoded: Decoded,
        tensor: Tensor,
        meaning: TensorId,
        found: Found,
    ) -> Match:
        relation, why = found.relation, found.why
        if relation == "exact" and decoded.is_fused and tensor.role == "out":
            relation = "fused"
        if decoded.is_fused:
            why = f"{why}; fused from {' + '.join(decoded.parts)}"
        confidence = found.confidence
        if decoded.note and decoded.is_known:
            confidence, why = min(confidence, _UNSURE), f"{why}; {decoded.note}"
        ge = each.source(tensor)
        fx = found.located[0].source(found.located[1], found.views)
        return Match(
            golden=fx if self._ge_side == "mine" else ge,
            mine=ge if self._ge_side == "mine" else fx,
            rule=RULE,
            confidence=confidence,
            reason=why,
            uses=tuple(self._same_content(found.located)),
            relation=relation,
            rounded_to=self._rounded_to(fusion, meaning, found),
        )

    def _rounded_to(self, fusion: Fusion, meaning: TensorId, found: Found) -> DType | None:
        """The coarsest type on either side's way to the tensor."""
        own = self._roundings.get(meaning)
        if found.cast is None:
            return own
        cast = self._roundings.get(found.cast)
        return coarsest(own, coarsest(cast, fusion.graph.dtype(found.cast)))

    def _same_content(self, located: Located) -> Iterator[tuple[SideName, TensorRecord]]:
        """Other FX tensors that are compared with this one.

        They have the same values, or look at them in another order; or they are numbers that the
        node was given besides tensors, which its result depends on.
        """
        waiting = [located]
        self._covered.add(key_of(*located))
        while waiting:
            current = waiting.pop()
            others = [*self._fx.equals(current), *self._fx.numbers_beside(current)]
            if self._fx_side == "golden":  # nobody doubts its views
                others += [each for one in (current, *others) for each in self._fx.views_of(one)]
            for other in others:
                key = key_of(*other)
                if key not in self._covered:
                    self._covered.add(key)
                    waiting.append(other)
                    yield self._fx_side, other[0].source(other[1]).record

    def _self_check(
        self, fusion: Fusion, each: Placed, decoded: Decoded, output: Tensor
    ) -> Match | None:
        """What an operator that changes no values got, against what it handed on."""
        types = {fusion.graph.type_of((name, 0)) for name in decoded.parts} or {each.operation.type}
        single = not decoded.is_fused and output.index == 0
        if self._ge_side == "golden" or not single or not types <= _PASSING:
            return None
        source = next((tensor for tensor in each.operation.inputs if tensor.index == 0), None)
        if source is None or not same_kind(source, output) or elements(source) != elements(output):
            return None
        shape = shape_of(output)
        views = (Reshape(shape),) if shape is not None and shape_of(source) != shape else ()
        got = Source(each.source(source).record, source, views)
        return Match(
            golden=got,
            mine=each.source(output),
            rule=RULE,
            confidence=1.0,
            reason=f"{each.operation.type} must hand on what it gets",
            uses=((self._ge_side, got.record),),
            relation=SELF_CHECK,
        )

    def _turned(self) -> Iterator[Match]:
        """Nodes of mine that reorder axes: what they got against what they handed on."""
        for each in self._fx.placed:
            found = self._fx.turned(each) if self._fx_side == "mine" else None
            for output in each.operation.outputs if found is not None else ():
                if found is None or key_of(each, output) in self._covered:
                    continue
                views = (Reorder(found[1]),)
                got = Source(each.source(found[0]).record, found[0], views)
                located = (each, output)
                yield Match(
                    golden=got,
                    mine=each.source(output),
                    rule=RULE,
                    confidence=1.0,
                    reason=f"{each.operation.type} must hand on what it gets",
                    uses=((self._fx_side, got.record), *self._same_content(located)),
                    relation=SELF_CHECK,
                )

    def _left(self, fusion: Fusion) -> Iterator[Unmatched]:
        """FX tensors that nothing answered, with the reason."""
        inner = self._inner(fusion)
        for each in self._fx.placed:
            for tensor in each.tensors:
                if key_of(each, tensor) not in self._covered:
                    reason = self._why_alone(fusion, inner, each, tensor)
                    yield each.unmatched(self._fx_side, tensor, reason)

    def _why_alone(
        self, fusion: Fusion, inner: Set[tuple[str, int]], each: Placed, tensor: Tensor
    ) -> str:
        name, target = each.operation.name, each.operation.type
        if tensor.role == "in":
            if is_number(tensor):
                return "is a number among the arguments of its node; the graph holds it itself"
            if is_view(target):
                return "no dumped operator reads it in this form"
            return "no dumped operator reads or writes a tensor with these values"
        if (name, tensor.index) in inner:
            return "is computed inside a fused operator, whose file does not have it"
        if is_view(target):
            return f"the graph engine has no tensor of its own for this {target}"
        if name in fusion.graph.fx_nodes:
            return "no file of the dump has the tensor that the graph names so"
        return f"the graph names no tensor for this {target}"

    @staticmethod
    def _inner(fusion: Fusion) -> frozenset[tuple[str, int]]:
        """FX results, by node and place, that dumped operators computed."""
        return frozenset(
            (output.origin.node, output.origin.path[0])
            for name in fusion.owners
            for output in fusion.graph.graph.by_name[name].outputs
            if output.origin is not None
        )

    @cached_property
    def _identity(self) -> Identity:
        assert self._fusion is not None
        return Identity(self._operations, self._fusion, self._fx, self._graph_inputs)

    @cached_property
    def _graph_inputs(self) -> Mapping[TensorId, GraphInput]:
        assert self._fusion is not None
        return find_graph_inputs(self._operations, self._fusion, self._fx)

    @cached_property
    def _roundings(self) -> Mapping[TensorId, DType]:
        assert self._fusion is not None
        exact = {tensor for tensor, found in self._graph_inputs.items() if found.identical}
        return roundings(self._operations, self._fusion, exact)
