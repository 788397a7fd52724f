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
    within = _by_path(parts)
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
        for ends, find in ((given, _handed_on), (taken, _taken_in)):
            found = find(parts, inside) if ends else {}
            for tensor, value in ends:
                end = found.get(shape_of(tensor))
                if end is None or (find is _taken_in and back.get(end.number)):
                    continue
                # perhaps what a module within gives, too, where code is left out
                pair = (value, end) if whole is left else (end, value)
                links.add_also(*pair, LIKELY, "what the module takes or gives")


def _add_by_names(left: Program, right: Program, links: Links) -> None:
    """Link what the operators of modules of one name take and give, the innermost ones first."""
    ours, theirs = _by_path(left), _by_path(right)
    for path in sorted(ours.keys() & theirs.keys(), key=lambda path: -path.count(".")):
        inside = frozenset(ours[path]), frozenset(theirs[path])
        if any(not inside[1].issuperset(links.units.get(op, ())) for op in inside[0]):
            continue
        for find in (_handed_on, _taken_in):
            found = find(right, inside[1])
            for shape, one in find(left, inside[0]).items():
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


def _handed_on(side: Program, inside: Set[int]) -> Mapping[_Shape, Value]:
    """What some operators make and others read, else nobody: the only value of each shape."""
    handed: _Found = defaultdict(dict)
    unread: _Found = defaultdict(dict)
    for op in inside:
        for tensor in side.operations[op].outputs:
            value = side.value(op, tensor)
            if value is None or not is_float(tensor):
                continue
            readers = {each.op for each in value.reads} - {use.op for use in value.writes}
            if not readers:
                unread[shape_of(tensor)][value.number] = value
            elif not readers <= inside:
                handed[shape_of(tensor)][value.number] = value
    rest = {shape: of for shape, of in unread.items() if shape not in handed}
    return _only(rest) | _only(handed)


def _taken_in(side: Program, inside: Set[int]) -> Mapping[_Shape, Value]:
    """What some operators read and none of them makes: the only value of each shape."""
    taken: _Found = defaultdict(dict)
    for op in inside:
        for tensor in side.operations[op].inputs:
            value = side.value(op, tensor)
            if value is None or not is_float(tensor) or is_weight(side, value):
                continue
            if inside.isdisjoint(use.op for use in value.writes):
                taken[shape_of(tensor)][value.number] = value
    return _only(taken)


def _only(found: _Found) -> dict[_Shape, Value]:
    return {shape: next(iter(of.values())) for shape, of in found.items() if len(of) == 1}
