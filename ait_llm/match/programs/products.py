"""Products within projections, where the operators of modules were captured.

A projection is paired by what its module gives. The module may do more than multiply: make its
weight of a few bits, scale what comes out. So the product itself is held against the product of the
counterpart, and a weight that was made against the one that was captured. Both only where the
numbers of the two weights say that they are one; else the product is not yet what golden's is, such
as that of a base that an adapter adds to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.align import Pair
from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.match.programs.weight_parts import part_of
from ait_llm.match.programs.weight_rows import are_equal
from ait_llm.match.programs.weights import SharedRows, WeightLinks, row_numbers
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_moving
from ait_llm.program.program import Parameter, Program, Unit
from ait_llm.program.roles import Role

# Places of what is multiplied, of the weight, which all but ``linear`` take as [in, out], and of
# the bias.
_PLACES = {"mm": (0, 1, None), "linear": (0, 1, 2), "addmm": (1, 2, 0)}


@dataclass(frozen=True, slots=True)
class _Product:
    """The only product that a projection itself computes of what it reads."""

    result: Value
    weight: Parameter
    has_bias: bool


class Products:
    """Links products of paired projections, and weights that they make.

    Args:
        left, right: the programs.
        links: of values; extended.
        weights: of weights; extended.
    """

    def __init__(self, left: Program, right: Program, links: Links, weights: WeightLinks) -> None:
        self._left = left
        self._right = right
        self._links = links
        self._weights = weights

    def add(self, pairs: Sequence[Pair], where: str, confidence: float) -> None:
        """Link what the projections of all pairs that are certain multiply."""
        for pair in pairs:
            if pair.left[0].role is not Role.LINEAR or pair.alternatives:
                continue
            for rows in self._weights.rows(pair):
                self._link(rows, where, min(confidence, LIKELY))

    def _link(self, rows: SharedRows, where: str, confidence: float) -> None:
        one, other = _product(self._left, rows.left), _product(self._right, rows.right)
        if one is None or other is None or one.has_bias != other.has_bias:
            return
        numbers = row_numbers(rows.left_rows), row_numbers(rows.right_rows)
        if not are_equal(one.weight, other.weight, *numbers):
            return
        reason = f"product of the linear {where}"
        if rows.left_rows is None and rows.right_rows is None:
            self._links.add_also(one.result, other.result, confidence, reason)
        else:
            self._links.add(
                one.result,
                other.result,
                confidence,
                reason,
                left_columns=rows.left_rows,
                right_columns=rows.right_rows,
            )
        if (one.weight.value is None) != (other.weight.value is None):
            reason = f"weight that is made for the linear {where}"
            for mine in _looks(self._left, one.weight):
                for theirs in _looks(self._right, other.weight):
                    self._weights.link(rows, mine, theirs, reason, confidence)


def _product(side: Program, unit: Unit) -> _Product | None:
    """What a projection multiplies; None if that is not one product of what it reads."""
    found = [
        op
        for op in side.members(unit.op)
        if side.roles[op] is Role.OPERATOR and side.kind(op) in _PLACES
    ]
    if len(found) != 1 or unit.source is None:
        return None
    op, operation = found[0], side.operations[found[0]]
    factor, weight, bias = _PLACES[side.kind(op)]
    inputs = {tensor.stem: tensor for tensor in operation.inputs}
    source = inputs.get(f"input_{factor}")
    if source is None or side.value(op, source) is not unit.source or not operation.outputs:
        return None
    result = side.value(op, operation.outputs[0])
    known = _weight(side, unit, op, f"input_{weight}", inputs.get(f"input_{weight}"))
    if result is None or known is None:
        return None
    stem = f"input_{bias}"
    return _Product(result, known, stem in inputs or stem in operation.weights)


def _weight(
    side: Program, unit: Unit, op: int, stem: str, tensor: Tensor | None
) -> Parameter | None:
    """The weight of a product: the parameter of its module, or what the module made of others."""
    if tensor is not None:
        value = side.value(op, tensor)
        is_turned = side.kind(op) != "linear"
        return None if value is None else Parameter(op, "weight", tensor, value, is_turned)
    part, own = part_of(side.operations[op].weights.get(stem)), side.parameter(unit, "weight")
    if part is None or own is None or own.tensor.stored_as:
        return None  # what a saved weight in few bits stands for is not what the operator read
    is_own = part.name == f"{side.operations[unit.op].name}.{own.name}"
    return own if is_own and part.views(own.tensor) == () else None


def _looks(side: Program, weight: Parameter) -> Iterator[Parameter]:
    """A weight as it is multiplied, and as it was before it was transposed for that."""
    yield weight
    writes = [] if weight.value is None else weight.value.writes
    if not writes or not weight.transposed:
        return
    op = writes[0].op
    if side.kind(op) in ("t", "transpose") and is_moving(side.operations[op]):
        tensor = next(iter(side.operations[op].inputs), None)
        value = None if tensor is None else side.value(op, tensor)
        if tensor is not None and value is not None:
            yield Parameter(op, weight.name, tensor, value)
