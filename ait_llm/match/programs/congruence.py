"""Operators of both sides that compute the same thing from the same values.

Forwards: two operators answer each other if they are of one kind, read values that answer each
other, and lie in modules that do. Backwards: what an operator reads answers what its counterpart
reads in the same place. Both start from values that modules, weights and ids have linked already.
Order alone decides only between operators that nothing else can tell apart: within two modules that
run the same sequence, between equal calls on equal values, and between tensors that are made from
nothing with the same arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ait_llm.match.programs.links import Links
from ait_llm.match.programs.moved_scales import MovedScales
from ait_llm.match.programs.operator_pairs import COMMUTATIVE
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import params_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_uninitialised
from ait_llm.program.program import Program
from ait_llm.program.roles import Role
from ait_llm.program.unwritten import Unwritten

_FORWARD = "computes the same from the same values"
_SEQUENCE = "the same place in the same sequence of operators"
_PLACE = "made in the same module with the same arguments"
_MOST_PUT_IN = 8  # operators that the code of one side calls in addition
_Members = list[tuple[int, str]]


class Congruence(MovedScales):
    """Pairs operators until nothing more follows."""

    def __init__(
        self,
        left: Program,
        right: Program,
        tokens: Tokens | None,
        links: Links,
        places: dict[int, int],
        unwritten: tuple[Unwritten, Unwritten],
    ) -> None:
        super().__init__(left, right, tokens, links, places, unwritten)
        self._readers: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._made: dict[tuple[int | None, str], list[int]] = defaultdict(list)
        for op in _operators(right):
            kind = right.kind(op)
            sources = self._sources(right, op)
            for value in dict.fromkeys(value.number for value in sources):
                self._readers[value, kind].append(op)
            if not sources:
                self._made[right.flow.parents[op], kind].append(op)

    def run(self) -> None:
        """Pair what can be paired; links are added on the way."""
        if not self._readers and not self._made:
            return
        for place, other in self._places.items():
            self._take(place, other)
            self._pair_sequences(place, other)
        self._pair_sequences(None, None)
        self._pair_made()
        for _ in range(_ROUNDS):
            found = sum(self._pair_moved_scale(op) for op in _operators(self._left))
            found += sum(self._pair_forward(op) for op in _operators(self._left))
            found += sum(self._link_backward(op) for op in reversed(list(self._pairs)))
            found += sum(self._pair_backward(op) for op in reversed(list(_operators(self._left))))
            found += sum(self._link_filled(whole) for whole in self._filled)
            if not found:
                return

    def _pair_sequences(self, place: int | None, other: int | None) -> None:
        """Operators directly within two modules, or at the top, that run the same ones in order."""
        ours = self._members(self._left, place)
        theirs = self._members(self._right, other)
        if [kind for _, kind in ours] != [kind for _, kind in theirs]:
            if place is None and not self._pairs:  # nothing else says what answers what
                ours, theirs = _around_a_gap(ours, theirs)
            else:
                return
        pairs = [
            (op, partner)
            for (op, _), (partner, _) in zip(ours, theirs, strict=True)
            if self._left.roles[op] is Role.OPERATOR
        ]
        if pairs and all(self._fits(op, partner) for op, partner in pairs):
            for op, partner in pairs:
                if op not in self._pairs and partner not in self._taken:
                    self._link_inputs(op, partner)
                    self._pair(op, partner, _SEQUENCE)

    @staticmethod
    def _members(program: Program, place: int | None) -> list[tuple[int, str]]:
        """What runs directly within a module: operators by kind, modules by their last name."""
        return [
            (
                op,
                program.kind(op)
                if program.roles[op] is Role.OPERATOR
                else program.operations[op].name.rpartition(".")[2],
            )
            for op in (program.tops if place is None else program.members(place))
            if not is_uninitialised(program.operations[op])
        ]

    def _link_inputs(self, op: int, other: int) -> None:
        """Link what two operators read, place by place, where nothing says otherwise.

        What one side computes and the other one is given is left alone.
        """
        ours, theirs = self._sources(self._left, op), self._sources(self._right, other)
        if len(ours) == len(theirs):
            for mine, partner in zip(ours, theirs, strict=True):
                if bool(mine.writes) == bool(partner.writes):
                    self._link_if_open(mine, partner, _SEQUENCE)

    def _pair_made(self) -> None:
        """Tensors that are made from nothing: the only one of a module, or equal calls in order."""
        made: dict[tuple[int | None, str], list[int]] = defaultdict(list)
        for op in _operators(self._left):
            if op not in self._pairs and not self._sources(self._left, op):
                parent = self._left.flow.parents[op]
                made[parent, self._left.kind(op)].append(op)
        for (parent, kind), ours in made.items():
            place = None if parent is None else self._places.get(parent)
            if parent is not None and place is None:
                continue
            theirs = [o for o in self._made.get((place, kind), ()) if o not in self._taken]
            if len(ours) != len(theirs):
                continue
            pairs = list(zip(ours, theirs, strict=True))
            if len(pairs) == 1 or all(self._has_same_arguments(*pair) for pair in pairs):
                for op, other in pairs:
                    if self._fits(op, other) and self._is_made_alike(op, other):
                        self._pair(op, other, _PLACE)

    def _is_made_alike(self, op: int, other: int) -> bool:
        """True if sizes are no reason for two tensors from nothing to differ."""
        if self._tokens is None or self._tokens.is_same_layout:
            return True
        return self._has_same_arguments(op, other)

    def _has_same_arguments(self, op: int, other: int) -> bool:
        ours, theirs = self._left.operations[op], self._right.operations[other]
        return params_of(ours) == params_of(theirs)

    def _pair_forward(self, op: int) -> bool:
        """Find the counterpart of an operator by what it reads."""
        if op in self._pairs:
            return False
        kind = self._left.kind(op)
        sources = self._sources(self._left, op)
        wanted = [self._partners(value) for value in sources]
        known = [value for values in wanted for value in values]
        if not known:
            return False
        candidates = {
            other
            for number in dict.fromkeys(value.number for value in known)
            for other in self._readers.get((number, kind), ())
            if other not in self._taken and self._agrees(op, other, wanted)
        }
        if any(value.writes and not found for value, found in zip(sources, wanted, strict=True)):
            candidates = self._without_rivals(op, candidates)
        choice = self._choose(op, sorted(candidates))
        if choice is None:
            return False
        self._pair(op, choice, _FORWARD)
        return True

    def _without_rivals(self, op: int, candidates: set[int]) -> set[int]:
        """The candidate for an operator that also reads something computed that is not known.

        It may be another operator's, unless it is the only one in the module that answers the
        operator's own, and no other operator there could have it.
        """
        place = self._place_of(op)
        if place is not None:
            candidates = {c for c in candidates if place in self._right.flow.ancestors(c)}
        if len(candidates) != 1:
            return set()
        kind, (other,) = self._left.kind(op), candidates
        rivals = {
            use.op
            for value in self._sources(self._left, op)
            if self._partners(value)
            for use in value.reads
            if use.op not in self._pairs
            and self._left.roles[use.op] is Role.OPERATOR
            and self._left.kind(use.op) == kind
            and self._place_of(use.op) == place
            and self._fits(use.op, other)
        }
        return candidates if rivals == {op} else set()

    def _choose(self, op: int, candidates: list[int]) -> int | None:
        """The only candidate, else the only one in the module that answers the operator's own."""
        if len(candidates) == 1:
            return candidates[0]
        place = self._place_of(op)
        inside = [
            other
            for other in candidates
            if place is not None and place in self._right.flow.ancestors(other)
        ]
        if len(inside) == 1:
            return inside[0]
        params = dict(params_of(self._left.operations[op]))
        same = [o for o in inside or candidates if params_of(self._right.operations[o]) == params]
        if len(same) == 1:
            return same[0]
        twins = self._twins(op)
        # the same operator on the same values several times: equal results, in their order
        if same and len(twins) == len(same):
            return same[twins.index(op)]
        return None

    def _twins(self, op: int) -> list[int]:
        """Unpaired operators that read the same values with the same arguments."""
        sources = [value.number for value in self._sources(self._left, op)]
        kind, params = self._left.kind(op), params_of(self._left.operations[op])
        reads = self._sources(self._left, op)[0].reads
        return [
            use
            for use in dict.fromkeys(use.op for use in reads)
            if use not in self._pairs
            and self._left.roles[use] is Role.OPERATOR
            and self._left.kind(use) == kind
            and [value.number for value in self._sources(self._left, use)] == sources
            and params_of(self._left.operations[use]) == params
        ]

    def _agrees(self, op: int, other: int, wanted: list[Sequence[Value]]) -> bool:
        """True if nothing that the candidate reads answers something else, and the shapes fit."""
        if not self._fits(op, other) or not self._may_share_weights(op, other):
            return False
        theirs = self._sources(self._right, other)
        if len(theirs) != len(wanted) or self._moves_scale(op, other):
            return False
        orders = [theirs]
        if self._left.kind(op) in COMMUTATIVE and len(theirs) == 2:
            orders.append(theirs[::-1])
        return any(
            all(
                any(value is other for other in partners)
                if partners
                else not self._is_linked(value)
                for value, partners in zip(order, wanted, strict=True)
            )
            for order in orders
        )


def _around_a_gap(ours: _Members, theirs: _Members) -> tuple[_Members, _Members]:
    """What two sequences share, if one is the other with something put in behind a beginning."""
    shorter, longer = sorted(([kind for _, kind in side] for side in (ours, theirs)), key=len)
    count, more = len(shorter), len(longer) - len(shorter)
    start = next((n for n in range(count) if shorter[n] != longer[n]), count)
    if not start or not 0 < more <= _MOST_PUT_IN or shorter[start:] != longer[start + more :]:
        return [], []
    shared = [
        side if len(side) == count else [*side[:start], *side[start + more :]]
        for side in (ours, theirs)
    ]
    return shared[0], shared[1]


# An operator whose sources are found late in the program needs another round; each round walks
# the graph once, and what is further apart than this has no anchor in between.
_ROUNDS = 8


def _operators(program: Program) -> Iterable[int]:
    return (
        op
        for op, role in enumerate(program.roles)
        if role is Role.OPERATOR and not is_uninitialised(program.operations[op])
    )
