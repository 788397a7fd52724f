"""Batch norms that one side has folded into the module before them.

The weights of a convolution or a projection take up the scale and the shift of the norm behind it;
the norm is gone then, or an identity. What that module gives is what the norm gives on the other
side, and what it gives there has no counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.programs.anchors.ports import Ports, key_of
from ait_llm.match.programs.links import SURE, Links
from ait_llm.match.programs.reasons import FOLDED
from ait_llm.program.describe import shape_of, size_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_MOST = 1 << 26  # elements that are looked at


@dataclass(frozen=True, slots=True)
class Folded:
    """A norm that the other side has folded.

    Attributes:
        number: of the side with the norm, 0 for the left one.
        given: what the norm reads.
        made: what it gives.
        other: what the module with the folded norm gives.
        names: of that module and of the norm.
    """

    number: int
    given: Value
    made: Value
    other: Value
    names: tuple[str, str]


def folded_norms(left: Program, right: Program) -> Iterator[Folded]:
    """Norms that one of two programs with modules of the same names has folded."""
    sides = left, right
    calls = [_modules(side) for side in sides]
    for number, side in enumerate(sides):
        other = sides[1 - number]
        for (name, call), op in calls[number].items():
            norm = side.operations[op]
            rest = calls[1 - number].get((name, call))
            if "BatchNorm" not in norm.type or not norm.inputs or not norm.outputs:
                continue
            if rest is not None and other.operations[rest].type != "Identity":
                continue
            given, made = side.value(op, norm.inputs[0]), side.value(op, norm.outputs[0])
            maker = None if given is None else _maker(side, given)
            if given is None or made is None or maker is None:
                continue
            own = side.operations[maker]
            partner = calls[1 - number].get((own.name, own.call))
            if partner is None or other.operations[partner].type != own.type:
                continue
            result = other.operations[partner].outputs[:1]
            value = other.value(partner, result[0]) if result else None
            if value is not None and _is_nearer(result[0], norm.outputs[0], norm.inputs[0]):
                yield Folded(number, given, made, value, (own.name, norm.name))


def link_folded(left: Program, right: Program, links: Links, ports: Ports) -> frozenset[str]:
    """Link what modules with folded norms give; names of modules whose weights are others.

    Args:
        left, right: the programs.
        links, ports: what is paired already; corrected.
    """
    names: set[str] = set()
    for each in folded_norms(left, right):
        for use in each.given.uses:
            key = key_of(use.op, use.tensor)
            ports.without.add((each.number, key))
            (ports.left_reasons, ports.right_reasons)[each.number][key] = FOLDED
        pair = (each.made, each.other) if each.number == 0 else (each.other, each.made)
        _unpair(each, links, ports)
        links.of_left[pair[0].number] = []
        links.add(*pair, SURE, "the module before has the norm in its weights")
        names.update(each.names)
    return frozenset(names)


def _unpair(folded: Folded, links: Links, ports: Ports) -> None:
    """Take out what pairs the value that has no counterpart."""
    gone = {key_of(use.op, use.tensor) for use in folded.given.uses}
    if folded.number == 0:
        links.of_left.pop(folded.given.number, None)
        for found in links.of_right.values():
            found[:] = [link for link in found if link.left.number != folded.given.number]
        for key in gone:
            ports.ports.pop(key, None)
        return
    links.of_right.pop(folded.given.number, None)
    for found in links.of_left.values():
        found[:] = [link for link in found if link.right.number != folded.given.number]
    for key, every in list(ports.ports.items()):
        left = [port for port in every if key_of(port.op, port.tensor) not in gone]
        if left:
            ports.ports[key] = left
        else:
            del ports.ports[key]


def _modules(side: Program) -> dict[tuple[str, int], int]:
    """Modules by name and call."""
    return {
        (operation.name, operation.call): op
        for op, operation in enumerate(side.operations)
        if side.roles[op] is not Role.OPERATOR
    }


def _maker(side: Program, value: Value) -> int | None:
    """The innermost module that gives a value."""
    found = (use.op for use in value.writes if side.roles[use.op] is not Role.OPERATOR)
    return next(found, None)


def _is_nearer(result: Tensor, made: Tensor, given: Tensor) -> bool:
    """True if a result is nearer to what the norm gives than to what it reads."""
    shapes = {shape_of(each) for each in (result, made, given)}
    if len(shapes) > 1 or not all(each.has_data for each in (result, made, given)):
        return False
    if not 0 < size_of(result) <= _MOST:
        return False
    try:
        own, after, before = (each.nd().astype(np.float32) for each in (result, made, given))
    except AitError:
        return False
    return _distance(own, after) < _distance(own, before)


def _distance(one: Array, other: Array) -> float:
    return float(np.linalg.norm((one - other).reshape(-1)))
