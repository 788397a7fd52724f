"""Pairs of operators, and what they say of the values that operators read and give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.match.programs.row_spaces import Shape
from ait_llm.match.programs.shapes import Views, make_views
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import is_float, plain_arguments, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or"})
"""Operators whose two operands have no order."""
_LINEAR = frozenset({"linear", "forward Linear"})  # functions, and modules of API captures


class OperatorPairs:
    """Operators of two programs that answer each other.

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

    def _take(self, op: int, other: int) -> None:
        """Go on from two operators that answer each other already."""
        roles = self._left.roles[op], self._right.roles[other]
        if set(roles) == {Role.OPERATOR} and self._left.kind(op) == self._right.kind(other):
            for tensor in self._left.operations[op].outputs[:1]:
                value = self._left.value(op, tensor)
                links = () if value is None else self._links.of_left.get(value.number, ())
                if any(link.confidence >= LIKELY and link.is_whole for link in links):
                    self._pairs[op] = other
                    self._taken[other] = op

    def _may_share_weights(self, op: int, other: int) -> bool:
        """False if two operators read parameters of modules that do not answer each other.

        The base of a layer with LoRA reads what the merged layer reads, and gives something else,
        and so does a product with the whole numbers that a weight is kept as.
        """
        if self._left.is_part(op) != self._right.is_part(other):
            return False
        are_others = self._left.modules.are_others(op, self._right.modules, other)
        if are_others and self._left.kind(op) in _LINEAR:
            return False
        if not self._left.operations[op].weights or not self._right.operations[other].weights:
            return True
        if self._left.reads_adapted(op) != self._right.reads_adapted(other):
            return False
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
            if self._views(shapes[0], shapes[1]) is None:
                return False
        return True

    def _views(self, left: Shape, right: Shape) -> Views | None:
        """What makes tensors of these shapes comparable; None if nothing does."""
        return make_views(left, right, self._tokens)

    def _pair(self, op: int, other: int, reason: str) -> None:
        self._pairs[op] = other
        self._taken[other] = op
        self._links.add_unit(op, other)
        self._link_results(op, other, reason)

    def _link_results(self, op: int, other: int, reason: str) -> None:
        """Link what two paired operators give."""
        for left, right in self._results(op, other):
            self._links.add(left, right, LIKELY, reason)

    def _results(self, op: int, other: int) -> Iterator[tuple[Value | None, Value | None]]:
        ours, theirs = self._left.operations[op], self._right.operations[other]
        read = [
            (shape_of(a), shape_of(b)) for a, b in zip(ours.inputs, theirs.inputs, strict=False)
        ]
        is_padded = any(one != another for one, another in read)
        for mine, partner in zip(ours.outputs, theirs.outputs, strict=True):
            if is_padded and shape_of(mine) == shape_of(partner) == ():
                continue  # one number of all tokens, and of padding or other requests on one side
            yield self._left.value(op, mine), self._right.value(other, partner)

    def _have_one_shape(self, left: Value, right: Value) -> bool:
        """True if two values can be compared by their shapes."""
        shapes = shape_of(left.uses[0].tensor), shape_of(right.uses[0].tensor)
        if shapes[0] is None or shapes[1] is None:
            return False
        return self._views(shapes[0], shapes[1]) is not None

    def _link_if_open(self, left: Value, right: Value, reason: str) -> bool:
        """Link two values of which neither has a partner, if their shapes fit."""
        if self._partners(left) or self._is_linked(right):
            return False
        if not self._have_one_shape(left, right):
            return False
        self._links.add(left, right, LIKELY, reason)
        return True

    def _place_of(self, op: int) -> int | None:
        """The right module that answers the innermost paired module around an operator."""
        around = (self._places.get(parent) for parent in self._left.flow.ancestors(op))
        return next((place for place in around if place is not None), None)

    def _partners(self, value: Value) -> Sequence[Value]:
        """The right value that is the same as a whole, none or several."""
        return [link.right for link in self._links.of_left.get(value.number, ()) if link.is_whole]

    def _is_linked(self, value: Value) -> bool:
        return any(link.is_whole for link in self._links.of_right.get(value.number, ()))

    def _sources(self, program: Program, op: int) -> list[Value]:
        """What an operator reads, in order; found once, for every round asks again.

        Numbers that a graph's dump saves beside the tensors are no values of the program.
        """
        known = self._read[program is self._right]
        if op not in known:
            operation = program.operations[op]
            plain = plain_arguments(operation)
            tensors = (each for each in operation.inputs if each.stem not in plain)
            values = (program.value(op, tensor) for tensor in tensors)
            known[op] = [value for value in values if value is not None]
        return known[op]
