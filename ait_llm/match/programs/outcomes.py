"""What modules take and give, where the other side has operators only, or is another library.

The code of a module goes on behind the last module within it: a layer adds its residual, a model
caps its logits, experts are summed up. A capture of modules shows what comes of it as the result of
the module. The name of an operator says within which module it ran, so what leaves those of one
module is that result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.match.programs.weights import is_weight
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program

_Shape = tuple[int, ...] | None
_Found = dict[_Shape, dict[int, Value]]
_End = tuple[Value, _Shape, Set[int]]  # with the operators at its other end


def add_outcomes(left: Program, right: Program, links: Links) -> None:
    """Link what modules take and give to the only value of its shape that operators within do.

    Nothing within a module may answer what is not within the one of its name.
    """
    if left.is_packed or right.is_packed:
        return
    if left.has_modules == right.has_modules:
        if left.has_modules:
            _add_wholes(left, right, links)
        else:
            _add_by_names(left, right, links)
        return
    whole, parts = (left, right) if left.has_modules else (right, left)
    known, back = links.of_left, links.of_right
    if whole is not left:
        known, back = back, known
    units: dict[int, list[int]] = defaultdict(list)
    for op, several in links.units.items():
        for other in several:
            units[op if whole is left else other].append(other if whole is left else op)
    within, ends_of = _by_path(parts), _Ends(parts)
    for op, operation in enumerate(whole.operations):
        given, taken = (
            [
                (each, value)
                for each in _alone(tensors)
                if (value := whole.value(op, each)) is not None and not known.get(value.number)
            ]
            for tensors in (operation.outputs, operation.inputs)
        )
        if not given and not taken:
            continue
        named = within.get(operation.name, [])
        inside = frozenset(named)
        if not named and whole.flow.parents[op] is None:
            inside = frozenset(range(len(parts.operations)))  # a graph names its nodes otherwise
        answers = [other for at in whole.within(op) for other in units.get(at, ())]
        if not (named or answers) or not inside.issuperset(answers):
            continue
        for ends, find in ((given, ends_of.handed_on), (taken, ends_of.taken_in)):
            found = find(inside) if ends else {}
            for tensor, value in ends:
                end = found.get(shape_of(tensor))
                if end is None or (ends is taken and back.get(end.number)):
                    continue
                # perhaps what a module within gives, too, where code is left out
                pair = (value, end) if whole is left else (end, value)
                links.add_also(*pair, LIKELY, "what the module takes or gives")


def _add_by_names(left: Program, right: Program, links: Links) -> None:
    """Link what the operators of modules of one name take and give, the innermost ones first."""
    ours, theirs = _by_path(left), _by_path(right)
    ends = _Ends(left), _Ends(right)
    for path in sorted(ours.keys() & theirs.keys(), key=lambda path: -path.count(".")):
        inside = frozenset(ours[path]), frozenset(theirs[path])
        if any(not inside[1].issuperset(links.units.get(op, ())) for op in inside[0]):
            continue
        for find in (_Ends.handed_on, _Ends.taken_in):
            found = find(ends[1], inside[1])
            for shape, one in find(ends[0], inside[0]).items():
                other = found.get(shape)
                if other is None or links.of_left.get(one.number):
                    continue
                if not links.of_right.get(other.number):
                    links.add(one, other, LIKELY, "what modules of one name take or give")


def _by_path(side: Program) -> Mapping[str, Sequence[int]]:
    """Operators by the path of each module that they ran within, as their names say."""
    found: dict[str, list[int]] = defaultdict(list)
    for op, operation in enumerate(side.operations):
        path = operation.name.removesuffix(f".{operation.type}")
        while path and path != operation.name:
            found[path].append(op)
            path = path.rpartition(".")[0]
    return found


def _add_wholes(left: Program, right: Program, links: Links) -> None:
    """Link what two models give, where each is one module around all others."""
    tops = left.tops, right.tops
    if len(tops[0]) != 1 or len(tops[1]) != 1:
        return
    results = _first_result(left, tops[0][0]), _first_result(right, tops[1][0])
    if results[0] is None or results[1] is None or shape_of(results[0]) != shape_of(results[1]):
        return
    ours, theirs = left.value(tops[0][0], results[0]), right.value(tops[1][0], results[1])
    if ours is None or theirs is None:
        return
    if not links.of_left.get(ours.number) and not links.of_right.get(theirs.number):
        links.add(ours, theirs, LIKELY, "what the model gives")


def _first_result(side: Program, op: int) -> Tensor | None:
    """The first result of a module; None if another one of its shape may be taken for it."""
    first = next(filter(is_float, side.operations[op].outputs), None)
    return first if first in _alone(side.operations[op].outputs) else None


def _alone(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those that no other one of their shape may be taken for."""
    floats = [tensor for tensor in tensors if is_float(tensor)]
    shapes = [shape_of(tensor) for tensor in floats]
    return [each for each, shape in zip(floats, shapes, strict=True) if shapes.count(shape) == 1]


class _Ends:
    """What operators of a program read and make; each is looked at once, but asked for often."""

    def __init__(self, side: Program) -> None:
        self._side = side
        self._made: dict[int, list[_End]] = {}
        self._read: dict[int, list[_End]] = {}

    def handed_on(self, inside: Set[int]) -> Mapping[_Shape, Value]:
        """What some operators make and others read, else nobody: the only value of each shape."""
        handed: _Found = defaultdict(dict)
        unread: _Found = defaultdict(dict)
        for op in inside:
            for value, shape, readers in self._results(op):
                if not readers:
                    unread[shape][value.number] = value
                elif not readers <= inside:
                    handed[shape][value.number] = value
        rest = {shape: of for shape, of in unread.items() if shape not in handed}
        return _only(rest) | _only(handed)

    def taken_in(self, inside: Set[int]) -> Mapping[_Shape, Value]:
        """What some operators read and none of them makes: the only value of each shape."""
        taken: _Found = defaultdict(dict)
        for op in inside:
            for value, shape, makers in self._arguments(op):
                if inside.isdisjoint(makers):
                    taken[shape][value.number] = value
        return _only(taken)

    def _results(self, op: int) -> list[_End]:
        found = self._made.get(op)
        if found is None:
            found = self._made[op] = [
                (value, shape_of(tensor), readers - makers)
                for tensor in self._side.operations[op].outputs
                if (value := self._side.value(op, tensor)) is not None and is_float(tensor)
                for readers, makers in (_users(value),)
            ]
        return found

    def _arguments(self, op: int) -> list[_End]:
        found = self._read.get(op)
        if found is None:
            found = self._read[op] = [
                (value, shape_of(tensor), _users(value)[1])
                for tensor in self._side.operations[op].inputs
                if (value := self._side.value(op, tensor)) is not None
                and is_float(tensor)
                and not is_weight(self._side, value)
            ]
        return found


def _users(value: Value) -> tuple[set[int], set[int]]:
    """Who reads a value, and who makes it."""
    return {each.op for each in value.reads}, {each.op for each in value.writes}


def _only(found: _Found) -> dict[_Shape, Value]:
    return {shape: next(iter(of.values())) for shape, of in found.items() if len(of) == 1}
