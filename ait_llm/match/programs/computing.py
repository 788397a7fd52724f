"""Operators of torch as terms, by their kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ait_llm.match.programs.atoms import Atoms
from ait_llm.match.programs.boxes import Box, Shape
from ait_llm.match.programs.terms import Operand, Terms

Item = object
"""An argument: a box, a number, a flag, a word, or a list of them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator.

    Attributes:
        atoms: of both programs.
        terms: of this one.
        kind: the operator.
        items: arguments by position; None where there is none.
        named: arguments by name.
        shape: of the first result.
        floats: whether the first argument and the first result are floating-point numbers.
    """

    atoms: Atoms
    terms: Terms
    kind: str
    items: Sequence[Item]
    named: Mapping[str, Item]
    shape: Shape
    floats: tuple[bool, ...]

    def item(self, place: int) -> Item:
        """An argument by position; None if it was not given."""
        return self.items[place] if place < len(self.items) else None

    def box(self, place: int) -> Box | None:
        """A tensor by position."""
        item = self.item(place)
        return item if isinstance(item, Box) else None

    def operands(self, count: int) -> list[Operand] | None:
        """The first arguments if they are tensors and numbers and nothing else was given."""
        given = [self.item(place) for place in range(count)]
        found = [each for each in given if isinstance(each, Box | int | float)]
        if len(found) != count or any(item is not None for item in self.items[count:]):
            return None
        return found

    def flags(self, start: int) -> Hashable:
        """Further arguments as a part of a key."""
        return repr(tuple(self.items[start:])), repr(sorted(self.named.items()))

    def each(self, name: str, *operands: Operand | None, flags: Hashable = ()) -> Box | None:
        """A term that is computed element by element."""
        given = [each for each in operands if each is not None]
        if len(given) != len(operands):
            return None
        return self.terms.elementwise(name, given, self.shape, flags)

    def times(self, one: Operand | None, other: Operand | None) -> Box | None:
        """A product; what is multiplied by one stays."""
        for factor, number in ((one, other), (other, one)):
            if isinstance(factor, Box) and not isinstance(number, Box) and number == 1:
                return factor.expanded(self.shape)
        return self.each("mul", one, other)

    def plus(self, one: Operand | None, other: Operand | None) -> Box | None:
        """A sum; what zero is added to stays."""
        for summand, number in ((one, other), (other, one)):
            if isinstance(summand, Box) and not isinstance(number, Box) and number == 0:
                return summand.expanded(self.shape)
        return self.each("add", one, other)

    def inverse(self, operand: Operand | None) -> Operand | None:
        """One by something."""
        if isinstance(operand, Box) or operand is None:
            return None if operand is None else self.own(operand, "reciprocal")
        return 1 / operand if operand else None

    def own(self, box: Box, name: str) -> Box | None:
        """A function of every element in the shape that a tensor has itself."""
        return self.terms.elementwise(name, [box], box.shape)

    def dims(self, place: int, rank: int) -> list[int]:
        """Dims by position, counted from 0; all if there are none."""
        item = self.item(place)
        given = item if isinstance(item, list) else [item]
        found = [each % rank for each in given if type(each) is int and rank]
        return found or list(range(rank))


Compute = Callable[[Call], Box | None]


def _sum(call: Call) -> Box | None:
    operands = call.operands(2)
    if operands is None:
        return None
    alpha = call.named.get("alpha", 1)
    one, other = operands if call.kind != "rsub" else operands[::-1]
    sign = 1 if call.kind == "add" else -1
    if not isinstance(alpha, int | float):
        return None
    return call.plus(one, _scaled(call, other, sign * alpha))


def _scaled(call: Call, operand: Operand, factor: float) -> Operand | None:
    if not isinstance(operand, Box):
        return operand * factor
    if factor == 1:
        return operand
    return call.terms.elementwise("mul", [operand, factor], operand.shape)


def _product(call: Call) -> Box | None:
    operands = call.operands(2)
    return None if operands is None or call.named else call.times(*operands)


def _quotient(call: Call) -> Box | None:
    operands = call.operands(2)
    if operands is None or call.named:
        return None
    part, total = operands
    found = (
        call.terms.share(part, total) if isinstance(part, Box) and isinstance(total, Box) else None
    )
    return found or call.times(part, call.inverse(total))


def _negative(call: Call) -> Box | None:
    return call.each("mul", call.box(0), -1.0)


def _power(call: Call) -> Box | None:
    box = call.box(0)
    exponent = 2 if call.kind == "square" else call.item(1)
    if box is None or isinstance(exponent, Box) or not isinstance(exponent, int | float):
        return None
    if exponent == 2:
        return call.times(box, box)
    if abs(exponent) == 0.5:
        root = call.own(box, "sqrt")
        return root if exponent > 0 or root is None else call.own(root, "reciprocal")
    return call.each("pow", box, float(exponent))


def _inverse_root(call: Call) -> Box | None:
    box = call.box(0)
    root = None if box is None else call.own(box, "sqrt")
    return None if root is None else call.own(root, "reciprocal")


def _silu(call: Call) -> Box | None:
    box = call.box(0)
    return None if box is None else call.times(box, call.own(box, "sigmoid"))


def _each(call: Call) -> Box | None:
    """Any other function of elements: flags and numbers among its arguments are a part of it."""
    given: list[Operand] = [item for item in call.items if isinstance(item, Box)]
    if any(isinstance(item, list) for item in call.items):
        return None
    words = [None if isinstance(item, Box) else repr(item) for item in call.items]
    others = [f"{name}={item!r}" for name, item in sorted(call.named.items())]
    flags = (*words, *others) if others or any(words) else ()
    return call.terms.elementwise(call.kind, given, call.shape, flags)


def _cast(call: Call) -> Box | None:
    """Between kinds of numbers; other casts keep their elements."""
    return call.each(f"cast to {'float' if call.floats[-1] else 'integer'}", call.box(0))


def _total(call: Call) -> Box | None:
    box = call.box(0)
    if box is None or call.named:
        return None
    dims = call.dims(1, len(box.dims))
    keep = call.item(2) is True
    flags = () if call.kind in ("mean", "sum") else call.flags(3)
    name = "sum" if call.kind == "mean" else call.kind
    found = call.terms.reduced(name, box, dims, keep, flags)
    count = prod(box.shape[dim] for dim in dims)
    if found is None or call.kind != "mean" or not count:
        return found
    return call.times(found, 1 / count)


def _along(call: Call) -> Box | None:
    box, dim = call.box(0), call.item(1)
    if box is None or type(dim) is not int or not box.dims:
        return None
    name = "softmax" if "softmax" in call.kind and "log" not in call.kind else call.kind
    return call.terms.along(name, box, dim % len(box.dims))


def _largest(call: Call) -> Box | None:
    """The values of a top k, where they come in falling order."""
    box, count, dim = call.box(0), call.item(1), call.item(2)
    if box is None or type(count) is not int or call.named or not box.dims:
        return None
    if dim not in (None, -1, len(box.dims) - 1) or False in (call.item(3), call.item(4)):
        return None
    return call.terms.largest(box, count)


def _matrices(call: Call) -> Box | None:
    one, other = call.box(0), call.box(1)
    return None if one is None or other is None else call.terms.product(one, other)


def _joined(call: Call) -> Box | None:
    parts, dim = call.item(0), call.item(1)
    boxes = [part for part in parts if isinstance(part, Box)] if isinstance(parts, list) else []
    if not isinstance(parts, list) or len(boxes) != len(parts):
        return None
    place = dim if type(dim) is int else 0
    if call.kind == "stack":
        place %= len(call.shape)
        opened = [box.view((*box.shape[:place], 1, *box.shape[place:])) for box in boxes]
        boxes = [box for box in opened if box is not None]
        return call.terms.joined(boxes, place) if len(boxes) == len(opened) else None
    boxes = [box for box in boxes if 0 not in box.shape]
    return call.terms.joined(boxes, place % len(call.shape)) if boxes and call.shape else None


def _copied(call: Call) -> Box | None:
    source = call.box(1)
    return None if source is None else source.expanded(call.shape)


_EACH = frozenset(
    {"abs", "bitwise_and", "bitwise_not", "bitwise_or", "ceil", "clamp", "clamp_max", "clamp_min"}
    | {"cos", "eq", "erf", "exp", "floor", "ge", "gelu", "gt", "isinf", "isnan", "le", "log"}
    | {"logical_and", "logical_not", "logical_or", "lt", "masked_fill", "maximum", "minimum"}
    | {"ne", "reciprocal", "relu", "round", "sigmoid", "sign", "sin", "softplus", "sqrt", "tanh"}
    | {"where"}
)
COMPUTE: Mapping[str, Compute] = {
    **dict.fromkeys(_EACH, _each),
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    **dict.fromkeys(("pow", "square"), _power),
    **dict.fromkeys(("mean", "sum", "amax", "amin", "prod", "any", "all"), _total),
    **dict.fromkeys(("_softmax", "softmax", "_log_softmax", "log_softmax", "cumsum"), _along),
    **dict.fromkeys(("mm", "bmm", "matmul"), _matrices),
    **dict.fromkeys(("cat", "concat", "stack"), _joined),
    **dict.fromkeys(("_to_copy", "to"), _cast),
    "copy_": _copied,
    "div": _quotient,
    "mul": _product,
    "neg": _negative,
    "rsqrt": _inverse_root,
    "silu": _silu,
    "topk": _largest,
}
"""How operators compute their first result, by kind; None where it cannot be said."""
