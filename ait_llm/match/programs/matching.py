"""The matcher: align two programs, then say for every tensor which one answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from ait_llm.core import TensorRecord
from ait_llm.dumps.model import Tensor
from ait_llm.match.lineages import Lineages
from ait_llm.match.model import (
    PROGRAMS,
    REDUCED,
    Match,
    MatchOptions,
    SideName,
    Source,
    Unmatched,
    matchers,
)
from ait_llm.match.programs.anchors.ports import Port, PortKey, all_matches, key_of
from ait_llm.match.programs.evidence import Evidence, are_of_one_library
from ait_llm.match.programs.fused_nodes import within_fused_nodes
from ait_llm.match.programs.likeness import Alike
from ait_llm.match.programs.link_views import LinkViews
from ait_llm.match.programs.links import LIKELY, POSSIBLE, SURE, Link
from ait_llm.match.programs.peers import Peers
from ait_llm.match.programs.read_weights import ReadWeights
from ait_llm.match.programs.reasons import ADDRESS, UNINITIALISED
from ait_llm.match.programs.restored import are_restored
from ait_llm.match.programs.shapes import make_views, reshaped
from ait_llm.match.programs.sources import source_of
from ait_llm.match.programs.unanswered import Unanswered
from ait_llm.match.programs.weights import WeightLink
from ait_llm.match.views import View
from ait_llm.program.adapters import program_of
from ait_llm.program.counted_places import PLACES
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Use, Value
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import is_address
from ait_llm.program.program import Parameter, Program

_SAME = "the same computation of the same values"
_READ = "the same operator reads it"
_MOVED = "the same elements in another order or shape"
_JOINED = "what was joined with others here"


@matchers.register(PROGRAMS)
def match_programs(golden: Pass, mine: Pass, options: MatchOptions) -> Iterable[Match | Unmatched]:
    """Match two passes as programs, by what they compute.

    Args:
        golden, mine: passes of kinds that have an adapter, in any combination.
        options: what is settled, such as by the user's mapping, is an anchor.

    Returns:
        A match for each tensor of either pass that has a counterpart; then the tensors without
        one, with the reason.
    """
    if golden.traits.compiled and mine.traits.compiled:
        from ait_llm.match.programs.anchors.engine import ports_of_graph  # others have no graphs

        ports = ports_of_graph(golden, mine)
        if ports is not None:
            return all_matches(golden, mine, ports)
    first, second = program_of(golden), program_of(mine)
    if first is None or second is None:
        return []
    given = options.settled
    # the side that computes more in one operation comes first: what it shows, the other shows too;
    # of two alike, a rank of several before the whole
    is_first = (first.fusing, golden.share[1]) > (second.fusing, mine.share[1])
    if is_first or are_of_one_library(first, second):
        return _Matching(Evidence(first, second, left_is_golden=True, given=given)).matches()
    return _Matching(Evidence(second, first, left_is_golden=False, given=given)).matches()


class _Matching:
    def __init__(self, evidence: Evidence) -> None:
        self._known = evidence
        self._left, self._right = left, right = evidence.left, evidence.right
        self._views = LinkViews(evidence.tokens, evidence.links, evidence.portion)
        self._unanswered = Unanswered(evidence, self._views)
        self._peers = Peers(left.run)
        sides = (left, right) if evidence.left_is_golden else (right, left)
        self._is_restored = are_restored(evidence.weights)
        self._lineages = Lineages(*sides, in_same_steps=self._is_restored)
        self._mentioned: set[PortKey] = set()  # right tensors that are in a match

    def matches(self) -> Iterator[Match | Unmatched]:
        sides = self._left, self._right
        golden, mine = sides if self._known.left_is_golden else sides[::-1]
        titles = self._known.title(golden), self._known.title(mine)
        return within_fused_nodes(golden, mine, self._found(), titles)

    def _found(self) -> Iterator[Match | Unmatched]:
        read = self._read_weights()
        for each in self._of_tensors():
            yield each
            for golden, mine in read.of(each) if isinstance(each, Match) else ():
                sides = (golden, mine) if self._known.left_is_golden else (mine, golden)
                yield self._matched(*sides, SURE, _READ)
        for link in self._known.weights.of_parameter:
            yield self._weight_match(link)

    def _read_weights(self) -> ReadWeights:
        """Weights that operators read, without those that links of modules tell."""
        left, right = self._left.run.weights, self._right.run.weights
        pairs = [
            (_path(self._left, link.left), _path(self._right, link.right))
            for link in self._known.weights.of_parameter
        ]
        if self._known.left_is_golden:
            return ReadWeights(left, right, pairs, self._known.weights.without)
        pairs = [(mine, golden) for golden, mine in pairs]
        return ReadWeights(right, left, pairs, self._known.weights.without)

    def _of_tensors(self) -> Iterator[Match | Unmatched]:
        """Of all that operations take and give."""
        for op, operation in enumerate(self._left.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield from self._matches_of_left(op, tensor)
        for op, operation in enumerate(self._right.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield from self._matches_of_right(op, tensor)

    def _matches_of_left(self, op: int, tensor: Tensor) -> Iterator[Match | Unmatched]:
        if self._known.unwritten[0].holds(op, tensor):
            yield self._unanswered.because(0, op, tensor, UNINITIALISED)
            return
        if is_address(self._left.operations[op], tensor):
            yield self._unanswered.because(0, op, tensor, ADDRESS)
            return
        value = self._left.value(op, tensor)
        ports = self._known.ports.ports.get(key_of(op, tensor), ())
        if ports:
            yield from (self._port_match(Use(op, tensor), port) for port in ports)
            return
        if (0, key_of(op, tensor)) in self._known.ports.looked_at:
            return
        if (0, key_of(op, tensor)) in self._known.ports.without:
            yield self._unanswered.left(op, tensor, [])
            return
        links = self._known.links.of_left.get(value.number, []) if value is not None else []
        links = links if self._is_open("left", op) else []
        if self._unanswered.counts_its_own(0, op, tensor, links):
            yield self._unanswered.because(0, op, tensor, PLACES)
            return
        routed = self._known.routed.get(key_of(op, tensor), ())
        yield from (self._port_match(Use(op, tensor), port) for port in routed)
        found = bool(routed)
        for link in links if not self._unanswered.is_stale(op, tensor) else ():
            use = self._known.counterparts.right_use(op, tensor, link.right)
            match = self._match(Use(op, tensor), self._compared(1, use, link.right), link)
            if match is not None:
                found = True
                yield match
        for match in self._weight_matches(0, op, tensor, value):
            found = True
            yield match
        if found:
            return
        summed = self._summed(op, tensor)
        others = [summed] if summed is not None else self._others(0, op, tensor)
        yield from others
        if not others:
            yield self._unanswered.left(op, tensor, links)

    def _matches_of_right(self, op: int, tensor: Tensor) -> Iterator[Match | Unmatched]:
        key = key_of(op, tensor)
        if key in self._mentioned or (1, key) in self._known.ports.looked_at:
            return
        if self._known.unwritten[1].holds(op, tensor):
            yield self._unanswered.because(1, op, tensor, UNINITIALISED)
            return
        if is_address(self._right.operations[op], tensor):
            yield self._unanswered.because(1, op, tensor, ADDRESS)
            return
        value = self._right.value(op, tensor)
        links = self._known.links.of_right.get(value.number, []) if value is not None else []
        links = links if self._is_open("right", op) else []
        if (1, key) in self._known.ports.without:
            yield self._unanswered.right(op, tensor, [])
            return
        if self._unanswered.counts_its_own(1, op, tensor, links):
            yield self._unanswered.because(1, op, tensor, PLACES)
            return
        whole = [link for link in links if link.right_columns is None]
        found = False
        for link in whole[:1] or links:
            use = self._known.counterparts.left_use(op, tensor, link.left)
            match = self._match(self._compared(0, use, link.left), Use(op, tensor), link)
            if match is not None:
                found = True
                yield match
        for match in self._weight_matches(1, op, tensor, value):
            found = True
            yield match
        if found:
            return
        others = self._others(1, op, tensor)
        yield from others
        if not others:
            yield self._unanswered.right(op, tensor, links)

    def _is_open(self, side: Literal["left", "right"], op: int) -> bool:
        """True if values say what answers the tensors of an operation, where no port does."""
        alone = self._known.ports.alone
        program = self._left if side == "left" else self._right
        return alone is None or op in alone[side == "right"] or program.operations[op].is_graph

    def _compared(self, number: int, use: Use, value: Value) -> Use:
        """A use of a value, or another one of its role where that is not compared by its nature."""
        without = self._known.ports.without
        uses = (use, *(each for each in value.uses if each.role == use.role))
        open_ones = (each for each in uses if (number, key_of(each.op, each.tensor)) not in without)
        return next(open_ones, use)

    def _match(self, left: Use, right: Use, link: Link) -> Match | None:
        views = self._views.of(left.tensor, right.tensor, link)
        if views is None or self._known.unwritten[1].holds(right.op, right.tensor):
            return None
        keys = (0, key_of(left.op, left.tensor)), (1, key_of(right.op, right.tensor))
        if not self._known.ports.without.isdisjoint(keys):
            return None
        self._mentioned.add(key_of(right.op, right.tensor))
        ours = source_of(self._left, left, views.left)
        theirs = source_of(self._right, right, views.right)
        confidence, reason = link.confidence, link.reason
        tokens = self._known.tokens
        if (views.left or views.right) and tokens is not None and not tokens.certain:
            confidence = min(confidence, POSSIBLE)
            reason += f"; tokens {tokens.evidence}"
        others = (self._right.operations[other].name for other in link.alternatives)
        return self._matched(ours, theirs, confidence, reason, tuple(others))

    def _summed(self, op: int, tensor: Tensor) -> Match | None:
        """The match of what one rank brings to a sum: with what all of them bring together."""
        value = self._left.value(op, tensor)
        whole = None if value is None else self._known.summands.get(value.number)
        others = None if whole is None else self._peers.summands(self._left.operations[op], tensor)
        if whole is None or not others:
            return None
        use = self._known.counterparts.right_use(op, tensor, whole)
        shapes = shape_of(tensor), shape_of(use.tensor)
        if shapes[0] is None or shapes[1] is None:
            return None
        views = make_views(shapes[0], shapes[1], self._known.tokens)
        if views is None:
            return None
        self._mentioned.add(key_of(use.op, use.tensor))
        ours = source_of(self._left, Use(op, tensor), (*others, *views.left))
        theirs = source_of(self._right, use, views.right)
        return self._matched(ours, theirs, LIKELY, "the sum over ranks", relation=REDUCED)

    def _others(self, number: int, op: int, tensor: Tensor) -> list[Match]:
        """Matches of a tensor that nothing is linked to: by its elements, else by what it joins."""
        value = (self._left, self._right)[number].value(op, tensor)
        if value is None:
            return []
        likeness, use = self._known.likeness, Use(op, tensor)
        alike = likeness.of(number, value, tensor)
        moved = None if alike is None else self._moved(number, use, value, alike)
        if moved is not None:
            return [moved]
        found = list(self._looked_up(number, use, value))
        for part in () if found else likeness.parts(number, value, tensor):
            found += filter(None, [self._moved(number, use, value, part)])
        return found

    def _moved(self, number: int, own: Use, value: Value, alike: Alike) -> Match | None:
        """The match of a tensor whose elements the other side has in another order or shape."""
        find = (self._known.counterparts.right_use, self._known.counterparts.left_use)[number]
        use = find(own.op, own.tensor, alike.value)
        if self._known.unwritten[1 - number].holds(use.op, use.tensor):
            return None
        views = self._known.likeness.views(number, value, own.tensor, alike, use.tensor)
        if views is None:
            return None
        reason = _JOINED if alike.part is not None else _MOVED if any(views) else _SAME
        return self._match_of_side(number, own, views[0], use, views[1], reason)

    def _looked_up(self, number: int, own: Use, value: Value) -> Iterator[Match]:
        """Matches of what one side looks up in a table and the other side hands on."""
        for each in self._known.looked_up.of(number, own.op, own.tensor, value):
            yield self._match_of_side(
                number, own, each.views, each.other, each.other_views, each.reason
            )

    def _match_of_side(
        self,
        number: int,
        own: Use,
        own_views: tuple[View, ...],
        other: Use,
        other_views: tuple[View, ...],
        reason: str,
    ) -> Match:
        """The match of a tensor of a side, 0 for the left one, with one of the other side."""
        if number == 0:
            self._mentioned.add(key_of(other.op, other.tensor))
        sides = (self._left, self._right) if number == 0 else (self._right, self._left)
        one = source_of(sides[0], own, own_views)
        two = source_of(sides[1], other, other_views)
        left, right = (one, two) if number == 0 else (two, one)
        return self._matched(left, right, LIKELY, reason)

    def _port_match(self, left: Use, port: Port) -> Match:
        """The match of what two paired operations take or give in one place."""
        right = Use(port.op, port.tensor)
        self._mentioned.add(key_of(port.op, port.tensor))
        ours = source_of(self._left, left, port.views.left)
        theirs = source_of(self._right, right, port.views.right)
        return self._matched(
            ours, theirs, port.confidence, port.reason, port.alternatives, port.uses
        )

    def _weight_matches(
        self, number: int, op: int, tensor: Tensor, value: Value | None
    ) -> Iterator[Match]:
        """Matches of what operations show of a weight, on either side.

        Args:
            number: of the side, 0 for the left one.
            op, tensor: where it is shown.
            value: what it is.
        """
        weights = self._known.weights
        known = (weights.of_value, weights.of_right_value)[number]
        for link in known.get(value.number, ()) if value is not None else ():
            own = (link.left, link.right)[number]
            shown = source_of((self._left, self._right)[number], Use(op, tensor))
            shapes = shape_of(tensor), shape_of(own.tensor)
            if shapes[0] is not None and shapes[1] is not None:
                shown = replace(shown, views=reshaped(shapes[0], shapes[1]))
            yield self._weight_match(link, *((shown, None) if number == 0 else (None, shown)))

    def _weight_match(
        self, link: WeightLink, left: Source | None = None, right: Source | None = None
    ) -> Match:
        """The match of two weights, where operations show them or as parameters."""
        left = left or self._parameter(self._left, link.left)
        right = right or self._parameter(self._right, link.right)
        ours = replace(left, views=(*left.views, *link.left_views))
        theirs = replace(right, views=(*right.views, *link.right_views))
        return self._matched(ours, theirs, link.confidence, link.reason)

    def _matched(
        self,
        left: Source,
        right: Source,
        confidence: float,
        reason: str,
        alternatives: tuple[str, ...] = (),
        uses: tuple[tuple[SideName, TensorRecord], ...] = (),
        relation: str = "",
    ) -> Match:
        golden, mine = (left, right) if self._known.left_is_golden else (right, left)
        steps, rounded_to = self._lineages.of(golden, mine)
        about = confidence, reason, alternatives, uses, steps, relation, rounded_to
        return Match(golden, mine, PROGRAMS, *about, in_same_steps=self._is_restored)

    def _parameter(self, side: Program, parameter: Parameter) -> Source:
        source = source_of(side, Use(parameter.op, parameter.tensor))
        return source if parameter.value is not None else replace(source, parameter=parameter.name)


def _path(side: Program, parameter: Parameter) -> str:
    """The dotted name of a parameter of a module."""
    return f"{side.operations[parameter.op].name}.{parameter.name}"
