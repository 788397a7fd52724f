"""What golden makes within a module, captured or told by a formula that its values prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.compare.origin_run import RunStructure
from ait_llm.core import TensorDesc
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.dumps.tensors import Described, Source
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.attention_parts import Attention, is_part
from ait_llm.judge.attention_proof import proof
from ait_llm.judge.attention_stages import Stage, formula_stages
from ait_llm.judge.definition_meanings import sort_of
from ait_llm.program.roles import is_operator

MOST_ELEMENTS = 1 << 19  # of a value, and of the scores of an attention
_MOST_STAGES = 256
_TOKENS = 2  # dimensions of rows of tokens


def stages_within(golden: RunStructure, module: int) -> Iterator[Stage]:
    """All that golden makes within a module, as far as the values tell.

    Args:
        golden: the run.
        module: index of the module.
    """
    ops = (module, *golden.members(module))
    tensors = [each for op in ops for each in golden.run.operations[op].outputs]
    for tensor in tensors[:_MOST_STAGES]:
        try:
            if tensor.has_data and math.prod(tensor.shape) <= MOST_ELEMENTS:
                yield Stage(tensor.nd())
        except AitError:
            continue
    for op in ops:
        operation = golden.run.operations[op]
        if is_operator(operation):
            continue
        is_attention = sort_of(operation) == "attention"
        try:
            made = [*(_of_attention(golden, op) if is_attention else _probabilities(operation))]
        except AitError:
            continue
        yield from map(Stage, made)


def _of_attention(golden: RunStructure, module: int) -> Iterator[Array]:
    """What the formula of an attention makes, if golden's values prove one."""
    operations, parents = golden.run.operations, golden.flow.parents
    start = len(operations[module].name) + 1
    members = [
        operations[op]
        for op in golden.members(module)
        if parents[op] == module and not is_operator(operations[op])
    ]
    parts = [at for at, each in enumerate(members) if is_part(each.name[start:])]
    if not parts:
        return
    behind = [each for each in members[parts[-1] + 1 :] if each.inputs]
    result = (behind[0].inputs if behind else operations[module].outputs)[:1]
    if not result:
        return
    # rows of one request may have no dimension of requests
    lift = _lifted if len(result[0].shape) == _TOKENS else (lambda each: each)
    attention = Attention(
        _with(operations[module], lift),
        [_with(each, lift) for each in members],
        operations[0],
        lift(result[0]),
    )
    found = proof(attention)
    given = None if found is None else attention.given(found[0])
    if found is None or given is None or given.key.size > MOST_ELEMENTS:
        return
    if math.prod(given.query.shape[:3]) * given.keys <= MOST_ELEMENTS:
        whole = given.sampled(MOST_ELEMENTS)
        yield from formula_stages(whole, found[0].formula)


@dataclass(frozen=True, slots=True)
class _Request(Source):
    """Reads rows of tokens as those of a batch of one request."""

    of: Tensor

    def header(self, tensor: Tensor) -> Described:
        """The same with one dimension more."""
        return Described(TensorDesc(self.of.dtype, (1, *self.of.shape)))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The same with one dimension more."""
        found: Array = self.of.nd()[None]
        return found

    def has_data(self, tensor: Tensor) -> bool:
        """True if values can be read."""
        return self.of.has_data


def _probabilities(operation: Operation) -> Iterator[Array]:
    """What a router chooses by, of the scores that it returns with the numbers of its choices."""
    made = [each for each in operation.outputs if each.has_data]
    if not made or not made[0].dtype.is_floating or all(each.dtype.is_floating for each in made):
        return
    scores = made[0].nd().astype(np.float64)
    if scores.ndim and scores.shape[-1] <= _MOST_STAGES:
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        yield powers / powers.sum(-1, keepdims=True)
        yield (1 + np.tanh(scores / 2)) / 2


def _lifted(tensor: Tensor) -> Tensor:
    return replace(tensor, source=_Request(tensor))


def _with(operation: Operation, lift: Callable[[Tensor], Tensor]) -> Operation:
    return replace(operation, tensors=tuple(map(lift, operation.tensors)))
