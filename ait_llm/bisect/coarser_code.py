"""Code that computes in a coarser type than golden's, though it is given nothing so coarse.

A program in bfloat16 beside one in float32 is no such code: all that it is given is in bfloat16.
What counts is how many bits the code drops, or adds, between what it is given and what it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.metrics.precision import SIGNIFICAND_BITS
from ait_llm.program.calls import CallGraph
from ait_llm.program.operators import kind_of


def coarser_code(
    golden: Sequence[Operation], mine: Sequence[Operation]
) -> tuple[Operation, str] | None:
    """The first operator that computes in a coarser type than golden's, and what to say of it.

    None if there is none, or where what the codes are given tells nothing.

    Args:
        golden, mine: the operators that the code of a module calls, in execution order.
    """
    sides = golden, mine
    given, got = map(_entering, sides)
    if given is None or got is None:
        return None
    theirs, ours = ([each for each in _from_values(side) if _computes(each)] for side in sides)
    kinds, others = ([kind_of(each) for each in side] for side in (theirs, ours))
    matcher = SequenceMatcher(None, kinds, others, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal" or last - first == end - start:
            for one, other in zip(theirs[first:last], ours[start:end], strict=True):
                right, is_ = _coarsest(one.tensors), _coarsest(other.tensors)
                if right is None or is_ is None or _bits(is_) >= _bits(right):
                    continue
                if _bits(is_) - _bits(got) < _bits(right) - _bits(given):
                    return other, f"it computes in {_name(is_)}, and golden's in {_name(right)}"
    return _only_cast(golden, mine, given, got)


def _only_cast(
    golden: Sequence[Operation], mine: Sequence[Operation], given: DType, got: DType
) -> tuple[Operation, str] | None:
    """A cast to a type that nothing computes in: what is rounded and handed on."""
    made = _coarsest(tensor for each in golden for tensor in each.outputs)
    if made is None or _bits(made) < _bits(given):
        return None
    for each in mine:
        reads, makes = _coarsest(each.inputs), _coarsest(each.outputs)
        if reads is not None and makes is not None and _bits(makes) < min(_bits(reads), _bits(got)):
            return each, f"it rounds to {_name(makes)}, and golden's code to nothing so coarse"
    return None


def _entering(operations: Sequence[Operation]) -> DType | None:
    """The coarsest floating type of what a code reads and does not make; None where not told."""
    made: set[int] = set()
    outside: list[Tensor] = []
    for each in operations:
        for tensor in each.inputs:
            if tensor.identity is None:
                return None
            if tensor.identity.storage not in made:
                outside.append(tensor)
        made |= {tensor.identity.storage for tensor in each.outputs if tensor.identity is not None}
        outside += _weights(each)
    return _coarsest(outside)


def _from_values(operations: Sequence[Operation]) -> Iterator[Operation]:
    """Operators that read what the code is given, or what it makes of that: masks are not such."""
    made: set[int] = set()
    plain: set[int] = set()  # made of nothing that is given
    for each in operations:
        floats = [tensor for tensor in each.inputs if _coarsest((tensor,)) is not None]
        known = {tensor.identity.storage for tensor in floats if tensor.identity is not None}
        reads = bool(known - plain) or any(True for _ in _weights(each))
        outputs = {tensor.identity.storage for tensor in each.outputs if tensor.identity}
        if reads:
            yield each
        else:
            plain |= outputs - made
        made |= outputs


def _weights(operation: Operation) -> Iterator[Tensor]:
    """The weights that an operator reads, as far as they were saved."""
    for record in operation.weights.values():
        name = record.get("name") if isinstance(record, dict) else None
        if isinstance(name, str) and name in operation.parameters:
            yield operation.parameters[name]


def _computes(operation: Operation) -> bool:
    return not CallGraph.is_passing(kind_of(operation), order=True)


def _coarsest(tensors: Iterable[Tensor]) -> DType | None:
    """The floating type with the fewest bits; None without one."""
    found: list[DType] = []
    for tensor in tensors:
        try:
            found += [tensor.dtype] if tensor.dtype in SIGNIFICAND_BITS else []
        except AitError:
            continue  # what cannot be read says nothing
    return min(found, key=_bits, default=None)


def _bits(dtype: DType) -> int:
    return SIGNIFICAND_BITS[dtype]


def _name(dtype: DType) -> str:
    return dtype.torch_name or dtype.name.lower()
