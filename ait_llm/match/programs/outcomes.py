"""What a model gives in the end, where one side says so by a module and the other by an operator.

The code of a model may go on behind its last projection: it caps or scales the logits. A capture of
modules shows what comes of it as the result of the model, one of operators as that of the last
operator of the model's own code, which nothing reads.
"""

from __future__ import annotations

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.program import Program


def add_outcomes(left: Program, right: Program, links: Links) -> None:
    """Link the result of the only outermost module of one side to the last operator's."""
    if left.is_packed or right.is_packed or left.has_modules == right.has_modules:
        return
    whole, parts = (left, right) if left.has_modules else (right, left)
    tops = [op for op in whole.tops if whole.members(op)]
    if len(tops) != 1:
        return
    result = _only_result(whole, tops[0])
    own = f"{whole.operations[tops[0]].name}."
    last = next(
        (
            (op, tensor)
            for op in range(len(parts.operations) - 1, -1, -1)
            if parts.operations[op].name.startswith(own)
            for tensor in parts.operations[op].outputs
            if (value := parts.value(op, tensor)) is not None and not value.reads
        ),
        None,
    )
    if result is None or last is None or not is_float(last[1]):
        return
    given, made = whole.value(tops[0], result), parts.value(*last)
    if given is None or made is None or shape_of(result) != shape_of(last[1]):
        return
    pair = (given, made) if whole is left else (made, given)
    if not links.of_left.get(pair[0].number) and not links.of_right.get(pair[1].number):
        links.add(*pair, LIKELY, "what the model gives")


def _only_result(side: Program, op: int) -> Tensor | None:
    """The result of a module that has but one."""
    results = [tensor for tensor in side.operations[op].outputs if is_float(tensor)]
    return results[0] if len(results) == 1 else None
