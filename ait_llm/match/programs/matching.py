"""The matcher: align two programs, then say for every tensor which one answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.model import Tensor
from ait_llm.match.model import (
    Match,
    MatchOptions,
    SideName,
    Source,
    Unmatched,
    matchers,
    record_of,
)
from ait_llm.match.programs.adapters import program_of
from ait_llm.match.programs.align import Aligner, Pair
from ait_llm.match.programs.congruence import Congruence
from ait_llm.match.programs.counterparts import Counterparts
from ait_llm.match.programs.layout import Layouts
from ait_llm.match.programs.links import LIKELY, SURE, Link, Links
from ait_llm.match.programs.movement import Movements, Way, inverse
from ait_llm.match.programs.namesakes import Namesakes, Port
from ait_llm.match.programs.plan import Place, plan, same_ids
from ait_llm.match.programs.reasons import UNINITIALISED, WEIGHT, reason_for
from ait_llm.match.programs.rotary import RotaryLinks
from ait_llm.match.programs.shapes import Columns, Shape, Views, make_views
from ait_llm.match.programs.tokens import Tokens, find_tokens
from ait_llm.match.programs.weights import WeightLink, WeightLinks
from ait_llm.match.views import Rows, View
from ait_llm.program.describe import shape_of
from ait_llm.program.digests import digest
from ait_llm.program.flow import Use
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Parameter, Program
from ait_llm.program.unwritten import Unwritten

RULE = "programs"
_MOVED = "the same elements in another order or shape"
# Both shapes, the columns of each side, and the rows that a tensor was gathered from.
_Sought = tuple[Shape, Shape, Columns | None, Columns | None, tuple[int, ...] | None]


@matchers.register(RULE)
def match_programs(golden: Pass, mine: Pass, options: MatchOptions) -> Iterable[Match | Unmatched]:
    """Match two passes as programs, by what they compute.

    Args:
        golden, mine: passes of kinds that have an adapter, in any combination.
        options: not looked at.

    Returns:
        A match for each tensor of either pass that has a counterpart; then the tensors without
        one, with the reason.
    """
    first, second = program_of(golden), program_of(mine)
    if first is None or second is None:
        return []
    # the side that computes more in one operation comes first: what it shows, the other shows too
    if first.fusing > second.fusing:
        return _Matching(first, second, left_is_golden=True).matches()
    return _Matching(second, first, left_is_golden=False).matches()


class _Matching:
    def __init__(self, left: Program, right: Program, *, left_is_golden: bool) -> None:
        self._left = left
        self._right = right
        self._left_is_golden = left_is_golden
        self._unwritten = Unwritten(left), Unwritten(right)
        self._tokens: Tokens | None = find_tokens(left, right)
        self._layouts = Layouts(left, right, self._tokens)
        self._links = Links(left, right, self._layouts)
        self._weights = WeightLinks(left, right, self._layouts)
        self._namesakes = Namesakes(
            left, right, self._tokens, self._links, left_is_golden=left_is_golden
        )
        places = dict(self._namesakes.places)
        for op, other in places.items():
            self._weights.add_same(op, other, SURE)
        # what one of several ranks computes is known by its name and its share alone
        if left.run.share == right.run.share:
            self._align()
            for op, other in Counterparts(left, right, self._links.units).pairs():
                places.setdefault(op, other)
            Congruence(left, right, self._tokens, self._links, places).run()
        self._counterparts = Counterparts(left, right, self._links.units)
        self._movements = Movements(left), Movements(right)
        self._mentioned: set[tuple[str, int, str, int]] = set()
        self._known_views: dict[_Sought, Views | None] = {}

    def _align(self) -> None:
        aligner = Aligner(self._left, self._right, same_ids(self._left, self._right, self._tokens))
        aligned: list[tuple[Place, list[Pair]]] = [
            (place, aligner.align(place.left.units, place.right.units))
            for place in plan(self._left, self._right, aligner)
        ]
        for _, pairs in aligned:
            self._layouts.learn(pairs)
        for place, pairs in aligned:
            self._links.add_pairs(pairs, place.where, place.certainty)
        for place, pairs in aligned:
            self._links.add_sources(pairs, place.where, place.certainty)
        for place, pairs in aligned:
            self._weights.add(pairs, place.where, place.certainty)
            self._links.add_choices(pairs, place.where)
        for place, _ in aligned:
            self._links.add_layer(place.left, place.right, place.certainty)
        self._links.add_splits()
        rotary = RotaryLinks(self._left, self._right, self._links)
        rotary.add_tables()
        for place, _ in aligned:
            rotary.add_handed(place.left, place.right)
        rotary.add_rotated()

    def matches(self) -> Iterator[Match | Unmatched]:
        for op, operation in enumerate(self._left.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield from self._matches_of_left(op, tensor)
        for op, operation in enumerate(self._right.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield from self._matches_of_right(op, tensor)
        for link in self._weights.of_parameter:
            yield self._weight_match(self._parameter_record(self._left, link.left), link)

    def _matches_of_left(self, op: int, tensor: Tensor) -> Iterator[Match | Unmatched]:
        if self._unwritten[0].holds(op, tensor):
            yield self._unmatched(self._left, op, tensor, UNINITIALISED)
            return
        value = self._left.value(op, tensor)
        port = self._namesakes.ports.get((op, tensor.role, tensor.index))
        if port is not None:
            yield self._port_match(Use(op, tensor), port)
            return
        links = self._links.of_left.get(value.number, []) if value is not None else []
        found = False
        for link in links if not self._is_stale(op, tensor) else ():
            use = self._counterparts.right_use(op, tensor, link.right)
            match = self._match(Use(op, tensor), use, link)
            if match is not None:
                found = True
                yield match
        for weight in self._weights.of_value.get(value.number, ()) if value is not None else ():
            found = True
            yield self._weight_match(self._record(self._left, Use(op, tensor)), weight)
        moved = None if found or links else self._moved_left(op, tensor)
        if moved is not None:
            yield moved
        elif not found:
            yield self._unmatched_left(op, tensor, links)

    def _matches_of_right(self, op: int, tensor: Tensor) -> Iterator[Match | Unmatched]:
        if ("right", op, tensor.role, tensor.index) in self._mentioned:
            return
        if self._unwritten[1].holds(op, tensor):
            yield self._unmatched(self._right, op, tensor, UNINITIALISED)
            return
        value = self._right.value(op, tensor)
        links = self._links.of_right.get(value.number, []) if value is not None else []
        whole = [link for link in links if link.right_columns is None]
        found = False
        for link in whole[:1] or links:
            use = self._counterparts.left_use(op, tensor, link.left)
            match = self._match(use, Use(op, tensor), link)
            if match is not None:
                found = True
                yield match
        moved = None if found or links else self._moved_right(op, tensor)
        if moved is not None:
            yield moved
        elif not found:
            known = self._namesakes.right_reasons.get((op, tensor.role, tensor.index))
            reason = known or reason_for(self._right, op, tensor, self._name(self._left))
            yield self._unmatched(self._right, op, tensor, reason)

    def _unmatched_left(self, op: int, tensor: Tensor, links: list[Link]) -> Unmatched:
        other = self._name(self._right)
        if links and self._is_stale(op, tensor):
            reason = (
                "it was captured after the operation, when its memory held something else; "
                "dump with -time 2"
            )
        elif links:
            counterpart = self._right.operations[links[0].right.uses[0].op].name
            reason = f"its shape cannot be brought to that of its counterpart at {counterpart}"
        elif (op, tensor.role, tensor.index) in self._namesakes.left_reasons:
            reason = self._namesakes.left_reasons[op, tensor.role, tensor.index]
        else:
            reason = reason_for(self._left, op, tensor, other)
            if reason.startswith(WEIGHT) and not self._right.run.weights:
                reason += "; dump it with --weights"
        return self._unmatched(self._left, op, tensor, reason)

    def _is_stale(self, op: int, tensor: Tensor) -> bool:
        """True for an input that was captured after the operation and is no longer what it was."""
        if tensor.role != "in" or tensor.phase != "after":
            return False
        value = self._left.value(op, tensor)
        writes = value.writes if value is not None else []
        if not writes:
            return False
        before, now = digest(writes[0].tensor), digest(tensor)
        return before is not None and now is not None and before != now

    def _match(self, left: Use, right: Use, link: Link) -> Match | None:
        views = self._views(left.tensor, right.tensor, link)
        if views is None or self._unwritten[1].holds(right.op, right.tensor):
            return None
        self._mentioned.add(("right", right.op, right.role, right.tensor.index))
        ours = Source(self._record(self._left, left), left.tensor, views.left)
        theirs = Source(self._record(self._right, right), right.tensor, views.right)
        confidence, reason = link.confidence, link.reason
        if (views.left or views.right) and self._tokens is not None and not self._tokens.certain:
            confidence = min(confidence, 0.6)
            reason += f"; tokens {self._tokens.evidence}"
        others = (self._right.operations[other].name for other in link.alternatives)
        return self._turned(ours, theirs, confidence, reason, tuple(others))

    def _moved_left(self, op: int, tensor: Tensor) -> Match | None:
        """The match of a value that only movement parts from one that is linked."""
        value = self._left.value(op, tensor)
        way = (
            None
            if value is None
            else self._movements[0].nearest(value, shape_of(tensor), self._is_linked_left)
        )
        if way is None:
            return None
        link = next(filter(_is_whole, self._links.of_left[way.number]))
        use = self._counterparts.right_use(op, tensor, link.right)
        views = self._moved_views(way, use.tensor)
        if views is None or self._unwritten[1].holds(use.op, use.tensor):
            return None
        ours = Source(self._record(self._left, Use(op, tensor)), tensor, ())
        theirs = Source(self._record(self._right, use), use.tensor, views)
        return self._turned(ours, theirs, min(link.confidence, LIKELY), _MOVED, ())

    def _moved_right(self, op: int, tensor: Tensor) -> Match | None:
        value = self._right.value(op, tensor)
        way = (
            None
            if value is None
            else self._movements[1].nearest(value, shape_of(tensor), self._is_linked_right)
        )
        if way is None:
            return None
        link = next(filter(_is_whole, self._links.of_right[way.number]))
        use = self._counterparts.left_use(op, tensor, link.left)
        views = self._moved_views(way, use.tensor)
        if views is None or self._unwritten[0].holds(use.op, use.tensor):
            return None
        ours = Source(self._record(self._left, use), use.tensor, views)
        theirs = Source(self._record(self._right, Use(op, tensor)), tensor, ())
        return self._turned(ours, theirs, min(link.confidence, LIKELY), _MOVED, ())

    def _is_linked_left(self, number: int) -> bool:
        return any(map(_is_whole, self._links.of_left.get(number, ())))

    def _is_linked_right(self, number: int) -> bool:
        return any(map(_is_whole, self._links.of_right.get(number, ())))

    def _moved_views(self, way: Way, tensor: Tensor) -> tuple[View, ...] | None:
        """What makes the partner of the value at the other end of a way like the one at this."""
        if self._tokens is not None and not self._tokens.is_same_layout:
            return None
        shape = shape_of(tensor)
        if shape is None or prod(shape) != prod(way.shape):
            return None
        views = make_views(shape, way.shape, self._tokens)
        if views is None or any(isinstance(view, Rows) for view in (*views.left, *views.right)):
            return None
        back = inverse(views.right, way.shape)
        return None if back is None else (*views.left, *back, *way.views)

    def _port_match(self, left: Use, port: Port) -> Match:
        """The match of what two modules of one name take or give in one place."""
        right = Use(port.op, port.tensor)
        self._mentioned.add(("right", right.op, right.role, right.tensor.index))
        return self._turned(
            Source(self._record(self._left, left), left.tensor, port.views.left),
            Source(self._record(self._right, right), right.tensor, port.views.right),
            port.confidence,
            port.reason,
            (),
        )

    def _weight_match(self, record: TensorRecord, link: WeightLink) -> Match:
        """The match of a weight with a parameter, which no operation of the other run shows."""
        parameter = self._parameter_record(self._right, link.right)
        ours = Source(record, link.left.tensor, link.left_views)
        theirs = Source(parameter, link.right.tensor, link.right_views)
        return self._turned(ours, theirs, link.confidence, link.reason, ())

    def _turned(
        self,
        left: Source,
        right: Source,
        confidence: float,
        reason: str,
        alternatives: tuple[str, ...],
    ) -> Match:
        golden, mine = (left, right) if self._left_is_golden else (right, left)
        return Match(golden, mine, RULE, confidence, reason, alternatives)

    def _parameter_record(self, side: Program, parameter: Parameter) -> TensorRecord:
        record = self._record(side, Use(parameter.op, parameter.tensor))
        if parameter.value is not None:
            return record
        return replace(record, name=parameter.name, role="weight", index=0, label=parameter.name)

    def _views(self, left: Tensor, right: Tensor, link: Link) -> Views | None:
        shapes = shape_of(left), shape_of(right)
        if shapes[0] is None or shapes[1] is None:
            return Views((), ())  # whoever reads it says what is wrong with it
        rows = self._links.rows_of(link.left)
        key = (shapes[0], shapes[1], link.left_columns, link.right_columns, rows)
        if key not in self._known_views:
            self._known_views[key] = make_views(
                shapes[0], shapes[1], self._tokens, link.left_columns, link.right_columns, rows
            )
        return self._known_views[key]

    @staticmethod
    def _record(side: Program, use: Use) -> TensorRecord:
        return record_of(side.operations[use.op], use.tensor, side.run.first_order + use.op)

    def _unmatched(self, side: Program, op: int, tensor: Tensor, reason: str) -> Unmatched:
        return Unmatched(self._side_name(side), self._record(side, Use(op, tensor)), reason)

    def _side_name(self, side: Program) -> SideName:
        return "golden" if (side is self._left) == self._left_is_golden else "mine"

    def _name(self, side: Program) -> str:
        return "the golden dump" if self._side_name(side) == "golden" else "my dump"


def _is_whole(link: Link) -> bool:
    return link.left_columns is None and link.right_columns is None
