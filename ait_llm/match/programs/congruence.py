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
from collections.abc import Iterable

from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import is_float, params_of, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_uninitialised, kind_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_FORWARD = "computes the same from the same values"
_BACKWARD = "read in the same place by what answers it"
_SEQUENCE = "the same place in the same sequence of operators"
_PLACE = "made in the same module with the same arguments"


class Congruence:
    """Pairs operators until nothing more follows.

    Args:
        left, right: the programs.
        tokens: alignment of their rows.
        links: what is linked already; extended.
        places: right operation by left operation for modules that answer each other.
    """

    def __init__(
        self,
        left: Program,
        right: Program,
        tokens: Tokens | None,
        links: Links,
        places: dict[int, int],
    ) -> None:
        self._left = left
        self._right = right
        self._tokens = tokens
        self._links = links
        self._places = dict(places)
        self._places_back = {other: op for op, other in places.items()}
        self._read: tuple[dict[int, list[Value]], dict[int, list[Value]]] = ({}, {})
        self._taken: dict[int, int] = {}
        self._pairs: dict[int, int] = {}
        self._readers: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._made: dict[tuple[int | None, str], list[int]] = defaultdict(list)
        for op in _operators(right):
            kind = kind_of(right.operations[op])
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
            self._pair_sequences(place, other)
        self._pair_sequences(None, None)
        self._pair_made()
        for _ in range(_ROUNDS):
            found = sum(self._pair_forward(op) for op in _operators(self._left))
            found += sum(self._link_backward(op) for op in reversed(list(self._pairs)))
            if not found:
                return

    def _pair_sequences(self, place: int | None, other: int | None) -> None:
        """Operators directly within two modules, or at the top, that run the same ones in order."""
        ours = self._members(self._left, place)
        theirs = self._members(self._right, other)
        if [kind for _, kind in ours] != [kind for _, kind in theirs]:
            return
        pairs = [
            (op, partner)
            for (op, _), (partner, _) in zip(ours, theirs, strict=True)
            if self._left.roles[op] is Role.OPERATOR
        ]
        if pairs and all(self._fits(op, partner) for op, partner in pairs):
            for op, partner in pairs:
                self._pair(op, partner, _SEQUENCE)
                self._link_inputs(op, partner)

    @staticmethod
    def _members(program: Program, place: int | None) -> list[tuple[int, str]]:
        """What runs directly within a module: operators by kind, modules by their last name."""
        return [
            (
                op,
                kind_of(program.operations[op])
                if program.roles[op] is Role.OPERATOR
                else program.operations[op].name.rpartition(".")[2],
            )
            for op in (program.tops if place is None else program.members(place))
            if not is_uninitialised(program.operations[op])
        ]

    def _link_inputs(self, op: int, other: int) -> None:
        """Link what two operators read, place by place, where nothing says otherwise."""
        ours, theirs = self._sources(self._left, op), self._sources(self._right, other)
        if len(ours) == len(theirs):
            for mine, partner in zip(ours, theirs, strict=True):
                self._link_if_open(mine, partner, _SEQUENCE)

    def _pair_made(self) -> None:
        """Tensors that are made from nothing: the only one of a module, or equal calls in order."""
        made: dict[tuple[int | None, str], list[int]] = defaultdict(list)
        for op in _operators(self._left):
            if op not in self._pairs and not self._sources(self._left, op):
                parent = self._left.flow.parents[op]
                made[parent, kind_of(self._left.operations[op])].append(op)
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
        kind = kind_of(self._left.operations[op])
        sources = self._sources(self._left, op)
        wanted = [self._partner(value) for value in sources]
        known = [value for value in wanted if value is not None]
        if not known:
            return False
        candidates = {
            other
            for number in dict.fromkeys(value.number for value in known)
            for other in self._readers.get((number, kind), ())
            if other not in self._taken and self._agrees(op, other, wanted)
        }
        choice = self._choose(op, sorted(candidates))
        if choice is None:
            return False
        self._pair(op, choice, _FORWARD)
        return True

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
        kind, params = kind_of(self._left.operations[op]), params_of(self._left.operations[op])
        reads = self._sources(self._left, op)[0].reads
        return [
            use
            for use in dict.fromkeys(use.op for use in reads)
            if use not in self._pairs
            and self._left.roles[use] is Role.OPERATOR
            and kind_of(self._left.operations[use]) == kind
            and [value.number for value in self._sources(self._left, use)] == sources
            and params_of(self._left.operations[use]) == params
        ]

    def _agrees(self, op: int, other: int, wanted: list[Value | None]) -> bool:
        """True if nothing that the candidate reads answers something else, and the shapes fit."""
        if not self._fits(op, other) or not self._may_share_weights(op, other):
            return False
        theirs = self._sources(self._right, other)
        if len(theirs) != len(wanted):
            return False
        orders = [theirs]
        if kind_of(self._left.operations[op]) in _COMMUTATIVE and len(theirs) == 2:
            orders.append(theirs[::-1])
        return any(
            all(
                value is partner if partner is not None else not self._is_linked(value)
                for value, partner in zip(order, wanted, strict=True)
            )
            for order in orders
        )

    def _may_share_weights(self, op: int, other: int) -> bool:
        """False if two operators read parameters of modules that do not answer each other.

        The base of a layer with LoRA reads what the merged layer reads, and gives something else.
        """
        if not self._left.operations[op].weights or not self._right.operations[other].weights:
            return True
        parents = self._left.flow.parents[op], self._right.flow.parents[other]
        place = None if parents[0] is None else self._places.get(parents[0])
        back = None if parents[1] is None else self._places_back.get(parents[1])
        return place in (None, parents[1]) and back in (None, parents[0])

    def _fits(self, op: int, other: int) -> bool:
        """True if the results have shapes that can be compared."""
        ours = self._left.operations[op].outputs
        theirs = self._right.operations[other].outputs
        if len(ours) != len(theirs):
            return False
        for mine, partner in zip(ours, theirs, strict=True):
            shapes = shape_of(mine), shape_of(partner)
            if shapes[0] is None or shapes[1] is None or is_float(mine) != is_float(partner):
                return False
            if make_views(shapes[0], shapes[1], self._tokens) is None:
                return False
        return True

    def _pair(self, op: int, other: int, reason: str) -> None:
        self._pairs[op] = other
        self._taken[other] = op
        self._links.units.setdefault(op, set()).add(other)
        ours, theirs = self._left.operations[op], self._right.operations[other]
        for mine, partner in zip(ours.outputs, theirs.outputs, strict=True):
            left, right = self._left.value(op, mine), self._right.value(other, partner)
            self._links.add(left, right, LIKELY, reason)

    def _link_backward(self, op: int) -> bool:
        """Link what a paired operator reads, where nothing says so yet."""
        other = self._pairs[op]
        ours, theirs = self._sources(self._left, op), self._sources(self._right, other)
        kind = kind_of(self._left.operations[op])
        open_left = [value for value in ours if self._partner(value) is None]
        open_right = [value for value in theirs if not self._is_linked(value)]
        if len(ours) != len(theirs) or not open_left or len(open_left) != len(open_right):
            return False
        if kind in _COMMUTATIVE and len(open_left) != 1:
            return False
        linked = [
            self._link_if_open(mine, partner, _BACKWARD)
            for mine, partner in zip(open_left, open_right, strict=True)
        ]
        return any(linked)

    def _link_if_open(self, left: Value, right: Value, reason: str) -> bool:
        """Link two values of which neither has a partner, if their shapes fit."""
        if self._partner(left) is not None or self._is_linked(right):
            return False
        shapes = shape_of(left.uses[0].tensor), shape_of(right.uses[0].tensor)
        if shapes[0] is None or shapes[1] is None:
            return False
        if make_views(shapes[0], shapes[1], self._tokens) is None:
            return False
        self._links.add(left, right, LIKELY, reason)
        return True

    def _place_of(self, op: int) -> int | None:
        """The right module that answers the innermost paired module around an operator."""
        around = (self._places.get(parent) for parent in self._left.flow.ancestors(op))
        return next((place for place in around if place is not None), None)

    def _partner(self, value: Value) -> Value | None:
        """The right value that is the same as a whole."""
        for link in self._links.of_left.get(value.number, ()):
            if link.left_columns is None and link.right_columns is None:
                return link.right
        return None

    def _is_linked(self, value: Value) -> bool:
        return any(
            link.left_columns is None and link.right_columns is None
            for link in self._links.of_right.get(value.number, ())
        )

    def _sources(self, program: Program, op: int) -> list[Value]:
        """What an operator reads, in order; found once, for every round asks again."""
        known = self._read[program is self._right]
        if op not in known:
            values = (program.value(op, tensor) for tensor in program.operations[op].inputs)
            known[op] = [value for value in values if value is not None]
        return known[op]


# An operator whose sources are found late in the program needs another round; each round walks
# the graph once, and what is further apart than this has no anchor in between.
_ROUNDS = 8
_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or"})


def _operators(program: Program) -> Iterable[int]:
    return (
        op
        for op, role in enumerate(program.roles)
        if role is Role.OPERATOR and not is_uninitialised(program.operations[op])
    )
