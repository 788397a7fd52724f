"""What operators read, by what answers their results; and memory that they filled."""

from __future__ import annotations

from collections import defaultdict

from ait_llm.dumps.model import Operation
from ait_llm.match.programs.links import Links
from ait_llm.match.programs.operator_pairs import COMMUTATIVE, OperatorPairs
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import params_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role
from ait_llm.program.unwritten import Filled, Unwritten

_FILLED = "memory that both sides filled with the same"
_BACKWARD = "read in the same place by what answers it"
# Equal results mean equal values read.
_INVERTIBLE = frozenset({"add", "sub", "mul", "div", "_softmax", "tanh", "sigmoid", "exp", "neg"})


class Backward(OperatorPairs):
    """Pairs operators of which the results answer each other, and what they read."""

    def __init__(
        self,
        left: Program,
        right: Program,
        tokens: Tokens | None,
        links: Links,
        places: dict[int, int],
        unwritten: tuple[Unwritten, Unwritten],
    ) -> None:
        super().__init__(left, right, tokens, links, places)
        self._scaled_apart: set[int] = set()  # pairs that read other multiples of the same
        self._filled = unwritten[0].filled()
        self._filled_right: dict[object, list[Filled]] = defaultdict(list)
        for whole in unwritten[1].filled():
            self._filled_right[whole.region, tuple(part for part, _ in whole.parts)].append(whole)

    def _link_filled(self, whole: Filled) -> bool:
        """Link memory that both sides filled with what answers each other, piece by piece."""
        fits = [
            other
            for other in self._filled_right[whole.region, tuple(part for part, _ in whole.parts)]
            if all(
                mine is not None and any(their is each for each in self._partners(mine))
                for (_, mine), (_, their) in zip(whole.parts, other.parts, strict=True)
            )
        ]
        return len(fits) == 1 and self._link_if_open(whole.value, fits[0].value, _FILLED)

    def _pair_backward(self, op: int) -> bool:
        """Pair an operator with the one that writes what answers its result, if it is invertible.

        All but one of the values that it reads have to answer each other, or shapes have to say
        which is which: sums of three may be formed in another order.
        """
        ours = self._left.operations[op]
        if op in self._pairs or len(ours.outputs) != 1 or self._left.kind(op) not in _INVERTIBLE:
            return False
        value = self._left.value(op, ours.outputs[0])
        partners = self._partners(value) if value is not None else ()
        writes = partners[0].writes if len(partners) == 1 else []
        other = writes[0].op if writes else None
        if other is None or other in self._taken or self._right.roles[other] is not Role.OPERATOR:
            return False
        theirs = self._right.operations[other]
        if self._right.kind(other) != self._left.kind(op) or _numbers_of(theirs) != _numbers_of(
            ours
        ):
            return False
        if not self._fits(op, other) or not self._may_share_weights(op, other):
            return False
        place = self._place_of(op)
        if place is not None and place not in self._right.flow.ancestors(other):
            return False
        pairs = self._open_sources(op, other)
        if pairs is None:
            return False
        self._pair(op, other, _BACKWARD)
        for mine, their in pairs:
            self._link_if_open(mine, their, _BACKWARD)
        return True

    def _open_sources(self, op: int, other: int) -> list[tuple[Value, Value]] | None:
        """What two operators read and nothing answers yet; None if that does not go together."""
        ours, theirs = self._sources(self._left, op), self._sources(self._right, other)
        if len(ours) != len(theirs):
            return None
        left, right = [], list(theirs)
        for value in ours:
            partners = self._partners(value)
            same = next((each for each in right if each in partners), None)
            if same is not None:
                right.remove(same)
            elif partners:
                return None
            else:
                left.append(value)
        if any(map(self._is_linked, right)):
            return None
        if len(left) != 2:
            return list(zip(left, right, strict=True)) if len(left) < 2 else None
        straight = list(zip(left, right, strict=True))
        crossed = list(zip(left, reversed(right), strict=True))
        fits = [all(self._have_one_shape(*pair) for pair in each) for each in (straight, crossed)]
        return straight if fits == [True, False] else None

    def _link_backward(self, op: int) -> bool:
        """Link what a paired operator reads, where nothing says so yet."""
        if op in self._scaled_apart:
            return False
        other = self._pairs[op]
        ours, theirs = self._sources(self._left, op), self._sources(self._right, other)
        kind = self._left.kind(op)
        open_left = [value for value in ours if not self._partners(value)]
        open_right = [value for value in theirs if not self._is_linked(value)]
        if len(ours) != len(theirs) or not open_left or len(open_left) != len(open_right):
            return False
        if kind in COMMUTATIVE and len(open_left) != 1:
            return False
        linked = [
            self._link_if_open(mine, partner, _BACKWARD)
            for mine, partner in zip(open_left, open_right, strict=True)
        ]
        return any(linked)


def _numbers_of(operation: Operation) -> list[float]:
    """Numbers among the arguments, whatever they are called."""
    values = params_of(operation).values()
    return sorted(value for value in values if type(value) in (int, float))
