"""What modules give, where the other side was captured operator by operator, or is another library.

The code of a module goes on behind the last module within it: a layer adds its residual, a model
caps its logits, experts are summed up. A capture of modules shows what comes of it as the result of
the module. The name of an operator says within which module it ran, so what leaves those of one
module is that result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program


def add_outcomes(left: Program, right: Program, links: Links) -> None:
    """Link results of modules to the only value of their shape that operators within hand on.

    What is within a module has to answer what is within the one of its name.
    """
    if left.is_packed or right.is_packed:
        return
    if left.has_modules == right.has_modules:
        if left.has_modules:
            _add_wholes(left, right, links)
        return
    whole, parts = (left, right) if left.has_modules else (right, left)
    known = links.of_left if whole is left else links.of_right
    units: dict[int, list[int]] = defaultdict(list)
    for op, several in links.units.items():
        for other in several:
            units[op if whole is left else other].append(other if whole is left else op)
    within = _by_path(parts)
    for op in range(len(whole.operations)):
        results = [
            (each, given)
            for each in (_results(whole, op) if whole.members(op) else ())
            if (given := whole.value(op, each)) is not None and not known.get(given.number)
        ]
        if not results:
            continue
        own = within.get(whole.operations[op].name, [])
        if not own and whole.flow.parents[op] is None:
            own = range(len(parts.operations))  # a graph, whose nodes are named in other words
        inside = frozenset(own)
        answers = [other for at in whole.within(op) for other in units.get(at, ())]
        if not answers or not inside.issuperset(answers):
            continue
        for result, given in results:
            made = _handed_on(parts, inside, shape_of(result))
            if made is not None:  # perhaps what a module within gives, too, where code is left out
                pair = (given, made) if whole is left else (made, given)
                links.add_also(*pair, LIKELY, "what the module gives")


def _by_path(side: Program) -> Mapping[str, Sequence[int]]:
    """Operators by the path of each module that they ran within, as their names say."""
    found: dict[str, list[int]] = defaultdict(list)
    for op, operation in enumerate(side.operations):
        path = operation.name
        while "." in path:
            path = path.rpartition(".")[0]
            found[path].append(op)
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
    return first if first in _results(side, op) else None


def _results(side: Program, op: int) -> list[Tensor]:
    """Results of a module that no other one of their shape may be taken for."""
    results = [tensor for tensor in side.operations[op].outputs if is_float(tensor)]
    shapes = [shape_of(tensor) for tensor in results]
    return [each for each, shape in zip(results, shapes, strict=True) if shapes.count(shape) == 1]


def _handed_on(side: Program, inside: Set[int], shape: tuple[int, ...] | None) -> Value | None:
    """What some operators make and others read, else nobody; None if it is not one value."""
    handed: dict[int, Value] = {}
    unread: dict[int, Value] = {}
    for op in inside:
        for tensor in side.operations[op].outputs:
            value = side.value(op, tensor)
            if value is None or not is_float(tensor) or shape_of(tensor) != shape:
                continue
            views = {use.op for use in value.writes}
            readers = {each.op for each in value.reads} - views
            if not readers:
                unread[value.number] = value
            elif not readers <= inside:
                handed[value.number] = value
    found = list((handed or unread).values())
    return found[0] if len(found) == 1 else None
