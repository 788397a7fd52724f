"""What the user says of two programs, as anchors: what reads and makes mapped tensors follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import prod

from ait_llm.match.model import Match, Source
from ait_llm.match.programs.anchors.arguments import Arguments
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.links import Links
from ait_llm.match.views import Part, View, shape_after
from ait_llm.program.describe import logical_shape
from ait_llm.program.flow import Use, Value
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role

_RULE = "saved_mapping"
_SURE = 1.0
_REASON = "your mapping pairs the two"


_Form = tuple[Role, int, int]


class _Neighbours:
    """Units of a program that read what another one makes, or make what it reads."""

    def __init__(self, side: Program) -> None:
        self._side = side
        self._readers: dict[int, list[Unit]] = defaultdict(list)
        self._writers: dict[int, list[Unit]] = defaultdict(list)
        for unit in side.units:
            if unit.source is not None:
                self._readers[unit.source.number].append(unit)
            if unit.result is not None:
                self._writers[unit.result.number].append(unit)

    def of(self, op: int) -> tuple[Mapping[_Form, list[int]], Mapping[_Form, list[int]]]:
        """Readers and writers by what they do and their widths."""
        unit = self._side.unit_of.get(op)
        if unit is None:
            return {}, {}
        result, source = unit.result, unit.source
        return (
            _by_form(self._readers[result.number] if result is not None else ()),
            _by_form(self._writers[source.number] if source is not None else ()),
        )


def _by_form(units: Iterable[Unit]) -> dict[_Form, list[int]]:
    found: dict[_Form, list[int]] = defaultdict(list)
    for unit in units:
        found[unit.role, unit.fan_in, unit.fan_out].append(unit.op)
    return found


class Given:
    """Operations and values of the left program that the user's mapping pairs with right ones.

    Args:
        left, right: the programs.
        found: what was paired before; the pairs of tensors that the mapping names are among it.
        left_is_golden: which side of a pair is the left one.

    Attributes:
        places: right operation by left operation: those that are named, and units next to them
            that no other one could be.
    """

    def __init__(
        self, left: Program, right: Program, found: Iterable[Match], *, left_is_golden: bool
    ) -> None:
        self._left = left
        self._right = right
        self._pairs = [
            (each.golden, each.mine) if left_is_golden else (each.mine, each.golden)
            for each in found
            # what is written without a doubt; and of a sum, no tensor is the other one
            if each.rule == _RULE and each.confidence == _SURE and not each.uses
        ]
        self._named = dict(self._operations())
        self.places = dict(self._followed())

    def _operations(self) -> Iterator[tuple[int, int]]:
        for one, other in self._pairs:
            is_result = not one.parameter and one.record.role == other.record.role == "out"
            if is_result and _is_whole(one) and _is_whole(other):
                yield self._use(self._left, one).op, self._use(self._right, other).op

    def _followed(self) -> Iterator[tuple[int, int]]:
        """The pairs, and units that alone read or make what they make or read."""
        taken = set(self._named), set(self._named.values())
        open_ = list(self._named.items())
        around = [_Neighbours(side) for side in (self._left, self._right)] if open_ else []
        while open_:
            op, partner = open_.pop()
            yield op, partner
            for ours, theirs in zip(around[0].of(op), around[1].of(partner), strict=True):
                for form in ours.keys() & theirs.keys():
                    first, second = ours[form], theirs[form]
                    if len(first) == len(second) == 1 and not (
                        first[0] in taken[0] or second[0] in taken[1]
                    ):
                        taken[0].add(first[0])
                        taken[1].add(second[0])
                        open_.append((first[0], second[0]))

    def add(self, ports: Arguments, links: Links) -> None:
        """Pair the operations, and link the values."""
        ports.settle(self._named)
        for op, partner in self._named.items():
            ports.pair(op, partner, _SURE, _REASON)
        for one, other in self._pairs:
            values = self._value(self._left, one), self._value(self._right, other)
            columns = _columns(one), _columns(other)
            if _is_whole(one) and _is_whole(other):
                links.add(*values, _SURE, _REASON)
            elif (columns[0] or _is_whole(one)) and (columns[1] or _is_whole(other)):
                links.add(
                    *values, _SURE, _REASON, left_columns=columns[0], right_columns=columns[1]
                )

    @staticmethod
    def _use(side: Program, source: Source) -> Use:
        return Use(source.order - side.run.first_order, source.tensor)

    def _value(self, side: Program, source: Source) -> Value | None:
        if source.parameter:
            return None
        use = self._use(side, source)
        return side.value(use.op, use.tensor)


def _is_whole(source: Source) -> bool:
    """True if what is compared of a tensor are all of its elements."""
    shape = logical_shape(source.tensor)
    return prod(shape_after(shape, source.views)) == prod(shape)


def _columns(source: Source) -> Columns | None:
    """The stretch of the last axis that is compared; None for any other part."""
    parts: list[View] = [view for view in source.views if isinstance(view, Part)]
    shape = logical_shape(source.tensor)
    if len(parts) != 1 or source.views[0] is not parts[0]:
        return None
    [part] = parts
    assert isinstance(part, Part)
    if part.axis != len(shape) - 1:
        return None
    return Columns(part.start, part.stop - part.start, shape[-1])
