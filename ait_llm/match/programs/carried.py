"""What becomes of the shares of ranks when an operator computes with them.

An operator of a rank and its counterpart in the whole program read values of which the rank has
all, or a share along one axis. From the shapes and from what kind of operator it is follows whether
the result is a share, too, or one part of a sum, or something of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod

from ait_llm.dumps.model import Operation
from ait_llm.match.programs.shards import Portion, Shape, computes_several
from ait_llm.program.describe import params_of
from ait_llm.program.operators import is_moving, kind_of

# A shape on the rank's side and on the other one.
Shapes = tuple[Shape, Shape]


class Outcome(Enum):
    """What the rank's result is of that of the whole program."""

    SHARE = "all of it, or the rank's share along the axis that differs"
    SUMMAND = "what the ranks have to add up"
    JOINED = "the rank's share of each part of a joined projection, one behind the other"


_POINTWISE = frozenset(
    {
        *("_to_copy", "abs", "add", "bitwise_and", "bitwise_not", "bitwise_or", "clamp", "copy_"),
        *("cos", "div", "elu", "eq", "erf", "exp", "ge", "gelu", "gt", "le", "log", "logical_and"),
        *("logical_not", "logical_or", "lt", "masked_fill", "masked_fill_", "maximum", "minimum"),
        *("mul", "ne", "neg", "pow", "reciprocal", "relu", "rsqrt", "rsub", "sigmoid", "sigmoid_"),
        *("silu", "silu_", "sin", "softplus", "sqrt", "square", "sub", "tanh", "where"),
    }
)
# They work along axes that their second argument names.
_ALONG = frozenset(
    {
        *("_log_softmax", "_softmax", "amax", "amin", "argmax", "argmin", "cat", "cumsum", "mean"),
        *("softmax", "sum", "var"),
    }
)
_PRODUCTS = frozenset({"addmm", "baddbmm", "bmm", "linear", "matmul", "mm"})
# What is computed from summands of a sum gives summands of a sum.
_LINEAR = frozenset({"clone", "detach", "alias", "view", "transpose", "permute", "t", "unsqueeze"})


def outcome(
    operation: Operation,
    counterpart: Operation,
    inputs: Sequence[Shapes],
    outputs: Sequence[Shapes],
    portion: Portion,
) -> Outcome | None:
    """What the rank's results are.

    Args:
        operation: of the rank.
        counterpart: what answers it in the whole program.
        inputs: what it and its counterpart read, in order.
        outputs: what they give.
        portion: which rank it is.

    Returns:
        None if that cannot be told.
    """
    read, made = _axes(inputs, portion), _axes(outputs, portion)
    if read is None or made is None:
        return None
    kind = kind_of(operation)
    if all(axis is None for axis in read):
        if all(axis is None for axis in made):
            # rows of a table, of which the rank has a part, are no share of anything
            same = _weights(operation) == _weights(counterpart)
            return Outcome.SHARE if same else None
        return _of_weights(operation, kind, outputs, made)
    if len(outputs) > 1 and not is_moving(operation) and "scaled_dot_product" not in kind:
        return None
    if kind in _PRODUCTS and made == [None]:
        return _sum_of_products(operation, inputs, read, made)
    if made and made[0] is not None and _carries(operation, kind, inputs, read, outputs, made):
        return Outcome.SHARE
    return None


def keeps_summands(operation: Operation) -> bool:
    """True for an operator that only moves the summands of a sum."""
    return kind_of(operation) in _LINEAR


def _axes(shapes: Sequence[Shapes], portion: Portion) -> list[int | None] | None:
    """The axes of which the rank has a share, None for what it has all of; none if one is odd."""
    found: list[int | None] = []
    for own, whole in shapes:
        axis = portion.axis(*portion.ordered(own, whole))
        if axis is None and own != whole:
            return None
        found.append(axis)
    return found


def _weights(operation: Operation) -> list[object]:
    """Shapes of the parameters that an operator reads."""
    return [weight.get("shape") for weight in operation.weights.values()]


def _of_weights(
    operation: Operation, kind: str, outputs: Sequence[Shapes], made: Sequence[int | None]
) -> Outcome | None:
    """A product with the rank's rows of a weight gives its columns."""
    last = len(outputs[0][0]) - 1
    if kind not in (*_PRODUCTS, "embedding") or not operation.weights or list(made) != [last]:
        return None
    names = [str(weight.get("name", "")) for weight in operation.weights.values()]
    modules = [name.rpartition(".")[0] for name in names]
    joined = any(map(computes_several, modules))
    return Outcome.JOINED if joined else Outcome.SHARE


def _sum_of_products(
    operation: Operation,
    inputs: Sequence[Shapes],
    read: Sequence[int | None],
    made: Sequence[int | None],
) -> Outcome | None:
    """Products over a share of what is summed are a part of the sum, but for a bias."""
    kind = kind_of(operation)
    last = len(inputs[0][0]) - 1
    if kind in ("addmm", "baddbmm") or read[0] != last:
        return None
    if kind == "linear" and "input_2" in operation.weights:
        return None
    other = list(read[1:])
    if other and other != [len(inputs[1][0]) - (1 if kind == "linear" else 2)]:
        return None
    return Outcome.SUMMAND


def _carries(
    operation: Operation,
    kind: str,
    inputs: Sequence[Shapes],
    read: Sequence[int | None],
    outputs: Sequence[Shapes],
    made: Sequence[int | None],
) -> bool:
    """True if the axis of the result is that of what was read."""
    own, axis = outputs[0][0], made[0]
    assert axis is not None
    from_end = [
        None if cut is None else cut - len(shapes[0])
        for shapes, cut in zip(inputs, read, strict=True)
    ]
    same_from_end = {place for place in from_end if place is not None} == {axis - len(own)}
    if kind in _POINTWISE:
        return same_from_end
    if kind == "expand":
        return same_from_end
    if is_moving(operation):
        return _moves(kind, inputs[0], read[0], own, axis)
    if kind in _ALONG:
        axes = _named_axes(operation, len(inputs[0][0]))
        return bool(axes) and not {cut for cut in read if cut is not None} & axes
    if "scaled_dot_product" in kind:
        return read[:3] == [1, 1, 1] and axis == 1 and len(own) == 4
    if kind in _PRODUCTS:
        # the other factor has the same share of what is not summed, or all of it
        return read[0] == axis and read[0] != len(inputs[0][0]) - 1 and _shares_batch(read, axis)
    return False


def _shares_batch(read: Sequence[int | None], axis: int) -> bool:
    return all(cut in (None, axis) for cut in read[1:])


def _moves(kind: str, source: Shapes, cut: int | None, own: Shape, axis: int) -> bool:
    """True if movement keeps the share: whole blocks, and never along the axis that is shared."""
    if cut is None:
        return False
    before = source[0]
    if kind in ("transpose", "t", "permute"):
        return before[cut] == own[axis]
    if kind in ("slice", "split", "split_with_sizes"):
        return axis == cut and before[cut] == own[axis]
    if kind in ("select", "unbind"):
        return before[cut] == own[axis] and axis in (cut, cut - 1)
    # elements in their order: as many blocks lie before the share as before
    return prod(before) == prod(own) and prod(before[:cut]) == prod(own[:axis])


def _named_axes(operation: Operation, count: int) -> set[int]:
    """Axes that the second argument of an operator names, from the front; empty without any."""
    found = set()
    for name, value in params_of(operation).items():
        if not name.startswith("input_1"):
            continue
        values = value if isinstance(value, list | tuple) else [value]
        found |= {each % count for each in values if type(each) is int}
    return found
