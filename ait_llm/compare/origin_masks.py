"""Which places the attention of two programs hides, whatever they hide them with.

One implementation adds a mask of lowest numbers, another one is told ``is_causal`` and gets no mask
at all. Where the two hide different places, that is said before any operator is suspected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ait_llm.compare.origin_between import maker
from ait_llm.compare.origin_run import RunStructure, operation_key
from ait_llm.compare.origin_values import RunValues
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.definition_arguments import arguments, is_attention
from ait_llm.program.describe import shape_of
from ait_llm.program.operators import kind_of
from ait_llm.program.roles import is_operator

_MASKS = ("attention_mask", "attn_mask")  # how modules call them, at the end; T5 says "mask"
_LOWEST = -9e3  # the least that masks hide with is -1e4
_MOST = 1 << 22  # elements
_TOLD = 3  # places
_ALIKE = 0.01  # weights of attention that differ by rounding, in 16 bits too


@dataclass(frozen=True, slots=True)
class OtherMask:
    """Places that only one of two attentions hides.

    Attributes:
        op: index of the module of mine whose code makes the mask.
        text: which places, as a clause.
        certain: what the module got is known on both sides.
    """

    op: int
    text: str
    certain: bool


def other_mask(
    values: RunValues, golden: RunStructure, counterparts: Mapping[int, Operation], op: int
) -> OtherMask | None:
    """How the mask of an attention differs from golden's; None if it does not, as far as known.

    A mask that hides what golden's attention hides agrees from then on, whatever its form.

    Args:
        values: my run.
        golden: the golden run.
        counterparts: golden operations by index of mine.
        op: index of an operation of mine within an attention, or of the module itself.
    """
    for module in (op, *values.flow.ancestors(op)):
        other = counterparts.get(module)
        if other is None or is_operator(other) or not _takes_mask(values.run.operations[module]):
            continue
        place = golden.places.get(operation_key(other))
        if place is None:
            return None
        theirs, used = _by_weights(other, values.run.operations[module]) or (
            _used(golden, place),
            _used(values, module),
        )
        if theirs is None or used is None:
            return None
        given = _given(values.run.operations[module])
        queries = [_queries(each) for each in (other, values.run.operations[module])]
        if None not in queries and queries[0] != queries[1]:  # one side has the others in a cache
            rows = min(each for each in queries if each is not None)
            theirs, used = theirs[-rows:], used[-rows:]
            given = None if given is None else given[-rows:]
        text = _told(used, theirs)
        if not text:
            if given is not None and not _told(given, theirs):
                _accept(values, module)
            return None
        name = values.run.operations[module].name
        before = _maker(values, module) if given is not None and _told(given, theirs) else None
        return OtherMask(
            module if before is None else before,
            f"the mask of `{name}` hides {text}",
            certain=given is not None,
        )
    return None


def mask_difference(golden: Tensor, mine: Tensor) -> str:
    """Which places only one of two masks of lowest numbers hides; empty if they are none."""
    if not (golden.dtype.is_floating and mine.dtype.is_floating):
        return ""
    one, other = _hidden(golden), _hidden(mine)
    if one is None or other is None or not (one.any() or other.any()):
        return ""
    return _told(other, one)


def _takes_mask(operation: Operation) -> bool:
    return any(map(_is_mask, operation.inputs)) or _is_without(operation)


def _is_mask(tensor: Tensor) -> bool:
    return _is_name(tensor.ir_name or "")


def _is_name(argument: str) -> bool:
    return argument == "mask" or argument.endswith(_MASKS)


def _queries(module: Operation) -> int | None:
    """Tokens that a module is given; None where its inputs do not tell."""
    shapes = [shape_of(tensor) for tensor in module.inputs if tensor.dtype.is_floating]
    counts = {shape[-2] for shape in shapes if shape is not None and len(shape) == 3}
    return counts.pop() if len(counts) == 1 else None


def _is_without(operation: Operation) -> bool:
    """True for a module that takes a mask and got none."""
    names = (name.removeprefix("input_") for name in operation.params if name.startswith("input_"))
    return any(map(_is_name, names))


def _used(run: RunStructure, module: int) -> Array | None:
    """Places that an attention hides, ``[..., query, key]``; None if nobody knows."""
    for op in run.members(module):
        operation = run.run.operations[op]
        if not is_operator(operation) or run.owner(op) != module:
            continue
        if is_attention(operation):
            if len(operation.inputs) > 3:
                return _hidden(operation.inputs[3])
            stated = arguments(operation).get("is_causal")
            shapes = [shape_of(each) for each in operation.inputs[:2]]
            if stated is None or any(shape is None for shape in shapes):
                return None
            return _causal(*(shape[-2] for shape in shapes if shape)) if stated.value else _none()
        if kind_of(operation) == "_softmax" and operation.inputs:
            return _hidden(operation.inputs[0])
    return _given(run.run.operations[module])


def _by_weights(golden: Operation, mine: Operation) -> tuple[Array, Array] | None:
    """Places that two modules hide by the weights of attention that they hand on, golden's first.

    None where they hand on none, or where weights of places that both see differ by more than
    their sum: then something else than the mask differs, and may make weights of zero.
    """
    ours = {tensor.index: tensor for tensor in mine.outputs}
    for tensor in golden.outputs:
        other = ours.get(tensor.index)
        one, two = _weights(tensor), None if other is None else _weights(other)
        if one is None or two is None or one.shape != two.shape:
            continue
        theirs, used = one == 0, two == 0
        hides = ~(theirs | used)
        sums = [np.sum(each * hides, -1, keepdims=True) for each in (one, two)]
        known = np.all(sums[0] > 0) and np.all(sums[1] > 0)
        if not known or not np.allclose(one * hides / sums[0], two * hides / sums[1], 0, _ALIKE):
            continue
        every = tuple(range(one.ndim - 2))
        found = np.all(theirs, every), np.all(used, every)
        if (found[0] != found[1]).any():
            return found
    return None


def _weights(tensor: Tensor) -> Array | None:
    """Weights of attention, ``[batch, heads, queries, keys]``; None for anything else."""
    try:
        if not tensor.has_data or len(tensor.shape) != 4 or not tensor.dtype.is_floating:
            return None
        if not 0 < prod(tensor.shape) <= _MOST:
            return None
        values = tensor.nd().astype(np.float64)
    except AitError:
        return None
    sums = np.sum(values, -1)
    return values if np.all(values >= 0) and np.allclose(sums, 1, 0, _ALIKE) else None


def _given(module: Operation) -> Array | None:
    """Places that the mask of a module hides, or that it hides without one."""
    for tensor in module.inputs:
        if _is_mask(tensor):
            return _hidden(tensor)
    if not _is_without(module) or module.definition.get("is_causal") is not True:
        return None
    shapes = [shape_of(tensor) for tensor in module.inputs]
    widths = {shape[-2] for shape in shapes if shape is not None and len(shape) == 3}
    return _causal(*widths, *widths) if len(widths) == 1 else None


def _hidden(tensor: Tensor) -> Array | None:
    """Places that the values of a mask, or scores behind one, hide."""
    try:
        if not tensor.has_data or not 0 < prod(tensor.shape) <= _MOST or len(tensor.shape) < 2:
            return None
        values = tensor.nd()
    except AitError:
        return None
    if values.dtype == np.bool_:
        hidden: Array = ~values
    elif tensor.dtype.is_floating:
        hidden = values.astype(np.float64) <= _LOWEST
    else:
        return None
    found: Array = np.any(hidden.reshape(-1, *hidden.shape[-2:]), axis=0)
    return found


def _causal(queries: int, keys: int) -> Array | None:
    return np.triu(np.ones((queries, keys), np.bool_), 1) if queries == keys else None


def _none() -> Array:
    return np.zeros((1, 1), np.bool_)


def _told(mine: Array, golden: Array) -> str:
    """Places that only one side hides; rows that hide all are nobody's."""
    try:
        mine, golden = np.broadcast_arrays(mine, golden)
    except ValueError:
        return ""
    seen: Array = ~(np.all(mine, -1) | np.all(golden, -1))
    seen = seen[:, None]
    parts = []
    for here, side in ((mine & ~golden & seen, "mine"), (golden & ~mine & seen, "golden")):
        places = np.argwhere(here)
        if len(places):
            told = ", ".join(f"[{query}, {key}]" for query, key in places[:_TOLD])
            more = f" and {len(places) - _TOLD} more" if len(places) > _TOLD else ""
            parts.append(f"{told}{more} only in {side}")
    return f"{' and '.join(parts)} (query, key)" if parts else ""


def _accept(values: RunValues, module: int) -> None:
    for tensor in values.run.operations[module].inputs:
        value = values.flow.at(module, "in", tensor.index)
        if value is not None and _is_mask(tensor):
            values.accept(value.number)


def _maker(values: RunValues, module: int) -> int | None:
    """The module whose code made the mask that another one gets."""
    for tensor in values.run.operations[module].inputs:
        value = values.flow.at(module, "in", tensor.index)
        if value is None or not _is_mask(tensor):
            continue
        op = values.producer(value.number)
        return maker(values, value.number) if op is None else values.owner(op)
    return None
