"""Operators of the graph engine against the FX nodes that they came from.

The graph before fusion names the FX value of most of its tensors: that name is the key by which
both sides know a value. Nothing goes by the position of an argument, for the converter reorders
them, turns one node into several operators and names only the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import cached_property

from ait_llm.core import DType, TensorRecord
from ait_llm.dumps.ge_names import OVERFLOW_TYPE
from ait_llm.dumps.model import Tensor
from ait_llm.match.model import PROGRAMS, SELF_CHECK, Match, SideName
from ait_llm.match.operators import Key, Placed, placed
from ait_llm.match.operators import key_of as placed_key
from ait_llm.match.programs.anchors.engine_values import EngineValues, Found
from ait_llm.match.programs.anchors.node_tensors import (
    Located,
    NodeTensors,
    elements,
    is_number,
    same_kind,
    shape_of,
)
from ait_llm.match.programs.anchors.ports import Port, Ports, Without, key_of
from ait_llm.match.programs.shapes import Views
from ait_llm.match.views import Reorder, Reshape, View
from ait_llm.program.ge.decoding import Decoded
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import TensorId
from ait_llm.program.ge.rounding import roundings
from ait_llm.program.lineage import coarsest
from ait_llm.program.one_pass import Pass
from ait_llm.program.roles_fx import is_view

_UNSURE = 0.6  # of a match whose operator may be read in two ways
# What hands on the values that it gets.
_PASSING = frozenset({"TransData", "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


class EngineNodes(Ports):
    """Pairs of tensors of one execution of the graph engine and the FX one that answers it.

    Args:
        ge, fx: the two passes; the left side is the golden one.
        fusion: what the engine's operators are.
        ge_side: which of them the graph engine's is.
    """

    def __init__(self, ge: Pass, fusion: Fusion, fx: Pass, ge_side: SideName) -> None:
        super().__init__()
        self._fusion = fusion
        self._fx = NodeTensors(fx)
        self._first = fx.first_order
        self._values = EngineValues(fusion, self._fx)
        self._ge_side: SideName = ge_side
        self._fx_side: SideName = "golden" if ge_side == "mine" else "mine"
        self._covered: set[Key] = set()
        self._ge_number = int(ge_side == "mine")
        for place, each in enumerate(placed(ge)):
            for tensor in each.tensors:
                self._pair(place, each, tensor)
        if self._fx_side == "mine":
            self._check_turned()
        for place, each in enumerate(self._fx.placed):
            for tensor in each.tensors:
                if placed_key(each, tensor) not in self._covered:
                    alone = self._why_alone(each, tensor)
                    self.leave(1 - self._ge_number, key_of(place, tensor), alone)

    def _pair(self, place: int, each: Placed, tensor: Tensor) -> None:
        found = self._found(place, each, tensor)
        if isinstance(found, Found):
            self._add(place, tensor, found)
            return
        self.leave(self._ge_number, key_of(place, tensor), found)
        if tensor.role == "out" and each.operation.type != OVERFLOW_TYPE:
            self._check(each, self._fusion.decoded[place], tensor)

    def _found(self, place: int, each: Placed, tensor: Tensor) -> Found | Without:
        """The FX tensor that answers one of the engine, or why there is none."""
        if each.operation.type == OVERFLOW_TYPE:
            why = "is what the device reports of overflows, no operator of the model"
            return Without(why, by_nature=True)
        decoded, meaning = self._fusion.decoded[place], self._fusion.meaning(place, tensor)
        if meaning is not None:
            return self._values.find(place, tensor, meaning)
        if decoded.inserted:
            return Without("is of an operator that the graph engine inserted", by_nature=True)
        return Without(decoded.note or "nothing tells which tensor of the graph it is")

    def _add(self, place: int, tensor: Tensor, found: Found) -> None:
        decoded, meaning = self._fusion.decoded[place], self._fusion.meaning(place, tensor)
        assert meaning is not None
        relation, why, confidence = found.relation, found.why, found.confidence
        if relation == "exact" and decoded.is_fused and tensor.role == "out":
            relation = "fused"
        if decoded.is_fused:
            why = f"{why}; fused from {' + '.join(decoded.parts)}"
        if decoded.note and decoded.is_known:
            confidence, why = min(confidence, _UNSURE), f"{why}; {decoded.note}"
        other = found.located[0].order - self._first, found.located[1]
        left, right = (place, tensor), other
        views = Views((), found.views)
        if self._ge_side == "mine":
            left, right, views = other, (place, tensor), Views(found.views, ())
        port = Port(
            *right,
            views,
            confidence,
            why,
            uses=tuple(self._same_content(found.located)),
            relation=relation,
            rounded_to=self._rounded_to(meaning, found),
        )
        self.ports.setdefault(key_of(*left), []).append(port)

    def _rounded_to(self, meaning: TensorId, found: Found) -> DType | None:
        """The coarsest type on either side's way to the tensor."""
        own = self._roundings.get(meaning)
        if found.cast is None:
            return own
        cast = self._roundings.get(found.cast)
        return coarsest(own, coarsest(cast, self._fusion.graph.dtype(found.cast)))

    def _same_content(self, located: Located) -> Iterator[tuple[SideName, TensorRecord]]:
        """Other FX tensors that are compared with this one.

        They have the same values, or look at them in another order; or they are numbers that the
        node was given besides tensors, which its result depends on.
        """
        waiting = [located]
        self._covered.add(placed_key(*located))
        while waiting:
            current = waiting.pop()
            others = [*self._fx.equals(current), *self._fx.numbers_beside(current)]
            if self._fx_side == "golden":  # nobody doubts its views
                others += [each for one in (current, *others) for each in self._fx.views_of(one)]
            for other in others:
                key = placed_key(*other)
                if key not in self._covered:
                    self._covered.add(key)
                    waiting.append(other)
                    yield self._fx_side, other[0].source(other[1]).record

    def _check(self, each: Placed, decoded: Decoded, output: Tensor) -> None:
        """Hold what an operator that changes no values got against what it handed on."""
        kinds = {self._fusion.graph.type_of((name, 0)) for name in decoded.parts}
        single = not decoded.is_fused and output.index == 0
        if (
            self._ge_side == "golden"
            or not single
            or not (kinds or {each.operation.type}) <= _PASSING
        ):
            return
        source = next((tensor for tensor in each.operation.inputs if tensor.index == 0), None)
        if source is None or not same_kind(source, output) or elements(source) != elements(output):
            return
        shape = shape_of(output)
        views = (Reshape(shape),) if shape is not None and shape_of(source) != shape else ()
        self.checks.append(_handed_on(each, source, output, views))

    def _check_turned(self) -> None:
        """Hold what nodes of mine that reorder axes got against what they handed on."""
        for each in self._fx.placed:
            found = self._fx.turned(each)
            for output in each.operation.outputs if found is not None else ():
                if found is not None and placed_key(each, output) not in self._covered:
                    check = _handed_on(each, found[0], output, (Reorder(found[1]),))
                    uses = (*check.uses, *self._same_content((each, output)))
                    self.checks.append(replace(check, uses=uses))

    def _why_alone(self, each: Placed, tensor: Tensor) -> Without:
        """Why nothing answered an FX tensor."""
        name, target = each.operation.name, each.operation.type
        if tensor.role == "in":
            if is_number(tensor):
                why = "is a number among the arguments of its node; the graph holds it itself"
                return Without(why, by_nature=True)
            if is_view(target):
                return Without("no dumped operator reads it in this form", by_nature=True)
            return Without(
                "no dumped operator reads or writes a tensor with these values",
                by_nature=any(map(self._is_inside, self._fx.equals((each, tensor)))),
            )
        if self._is_inside((each, tensor)):
            why = "is computed inside a fused operator, whose file does not have it"
            return Without(why, by_nature=True)
        if is_view(target):
            why = f"the graph engine has no tensor of its own for this {target}"
            return Without(why, by_nature=True)
        if name in self._fusion.graph.fx_nodes:
            # sizes are known without an operator that runs
            why = "no file of the dump has the tensor that the graph names so"
            return Without(why, by_nature=is_number(tensor))
        return Without(f"the graph names no tensor for this {target}")

    def _is_inside(self, located: Located) -> bool:
        """True for a result that only the inside of a fused operator has."""
        placed, tensor = located
        return tensor.role == "out" and (placed.operation.name, tensor.index) in self._inner

    @cached_property
    def _inner(self) -> Set[tuple[str, int]]:
        """FX results, by node and place, that dumped operators computed."""
        return frozenset(
            (output.origin.node, output.origin.path[0])
            for name in self._fusion.owners
            for output in self._fusion.graph.graph.by_name[name].outputs
            if output.origin is not None
        )

    @cached_property
    def _roundings(self) -> Mapping[TensorId, DType]:
        return roundings(self._fusion, self._values.is_identical)


def _handed_on(each: Placed, source: Tensor, output: Tensor, views: tuple[View, ...]) -> Match:
    """An operator of mine held against its own input."""
    got = each.source(source, views)
    return Match(
        golden=got,
        mine=each.source(output),
        rule=PROGRAMS,
        confidence=1.0,
        reason=f"{each.operation.type} must hand on what it gets",
        uses=(("mine", got.record),),
        relation=SELF_CHECK,
    )
