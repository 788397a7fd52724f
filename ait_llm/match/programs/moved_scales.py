"""Products of one formula whose programs multiply by its number in other places.

Attention scales its queries, its queries and keys by the root of the scale, or its scores. What
lies between these places is another multiple on each side, with no counterpart; what goes in and
what comes out has one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from ait_llm.match.programs.backward import Backward
from ait_llm.match.programs.multiples import behind, sources
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_PRODUCTS = frozenset({"mm", "bmm", "matmul"})
_MOVED = "what a product reads or gives that is scaled in another place"
_ROUNDING = 1e-6  # of numbers in float32, multiplied twice or thrice


class _Product(NamedTuple):
    """A product.

    Attributes:
        read: for each factor, the numbers of the values that it is a multiple of, itself included.
        first, then: by what the factors are multiplied, and what it makes.
        end: the last multiple of what it makes.
    """

    read: tuple[frozenset[int], ...]
    first: float
    then: float
    end: Value | None


class MovedScales(Backward):
    """Links around products that are scaled in another place."""

    @cached_property
    def _products(self) -> tuple[Mapping[int, _Product], Mapping[int, _Product]]:
        """All products of both sides."""
        return _products_of(self._left), _products_of(self._right)

    @cached_property
    def _readers_of(self) -> Mapping[int, list[int]]:
        """Right products by the numbers of all values that they read multiples of."""
        found: dict[int, list[int]] = defaultdict(list)
        for op, product in self._products[1].items():
            for number in {number for numbers in product.read for number in numbers}:
                found[number].append(op)
        return found

    def _moves_scale(self, op: int, other: int) -> bool:
        """True if two products are multiplied by one number, but not in the same places."""
        ours, theirs = self._products[0].get(op), self._products[1].get(other)
        if ours is None or theirs is None or _are_equal(ours.first, theirs.first):
            return False
        return _are_equal(ours.first * ours.then, theirs.first * theirs.then)

    def _pair_moved_scale(self, op: int) -> bool:
        """Pair a product with the only one that reads multiples of the same values."""
        product = self._products[0].get(op)
        if product is None or op in self._pairs:
            return False
        place = self._place_of(op)
        fits = [
            other
            for other in self._candidates(product)
            if other not in self._taken
            and (place is None or place in self._right.flow.ancestors(other))
            and self._moves_scale(op, other)
            and self._fits(op, other)
        ]
        if len(fits) != 1:
            return False
        self._pairs[op] = fits[0]
        self._taken[fits[0]] = op
        self._scaled_apart.add(op)
        self._links.add_unit(op, fits[0])
        ours, theirs = product.end, self._products[1][fits[0]].end
        if ours is not None and theirs is not None:
            self._link_if_open(ours, theirs, _MOVED)
        return True

    def _candidates(self, product: _Product) -> set[int]:
        """Right products that read, in each place, multiples of what answers the left one's."""
        found: set[int] | None = None
        for place, numbers in enumerate(product.read):
            partners = {each.number for number in numbers for each in self._partners_of(number)}
            readers = {
                other
                for number in partners
                for other in self._readers_of.get(number, ())
                if len(product.read) == len(self._products[1][other].read)
                and number in self._products[1][other].read[place]
            }
            found = readers if found is None else found & readers
            if not found:
                return set()
        return found or set()

    def _partners_of(self, number: int) -> list[Value]:
        return [link.right for link in self._links.of_left.get(number, ()) if link.is_whole]


def _products_of(side: Program) -> Mapping[int, _Product]:
    found = {}
    for op, role in enumerate(side.roles):
        operation = side.operations[op]
        if role is not Role.OPERATOR or side.kind(op) not in _PRODUCTS or not operation.outputs:
            continue
        values = [side.value(op, tensor) for tensor in operation.inputs]
        chains = [list(sources(side, value)) for value in values if value is not None]
        made = side.value(op, operation.outputs[0])
        end, then = (None, 1.0) if made is None else behind(side, made)
        found[op] = _Product(
            tuple(frozenset(value.number for value, _ in chain) for chain in chains),
            math.prod(chain[-1][1] for chain in chains),
            then,
            end,
        )
    return found


def _are_equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING)
