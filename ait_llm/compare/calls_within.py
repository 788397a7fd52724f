"""Calls that each side makes of other tokens, within a module that gives the same.

Where one side reads more tokens in a call, pads them or cuts them into blocks, functions within a
module see other shapes, and which rows of theirs are the same tokens is not always known. What the
module gives is compared token by token. Where it agrees, what its functions were paired with was no
counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.compare.origin_values import RunValues
from ait_llm.core.comparison import Comparison
from ait_llm.program.call_modules import modules_around
from ait_llm.program.counted_places import is_function

REASON = "each side computes it of other tokens, and what the module around it gives agrees"


def of_other_tokens(values: RunValues, comparisons: Sequence[Comparison]) -> dict[int, str]:
    """Failures of functions that mean nothing, by index; their values count as not compared.

    Args:
        values: of my run.
        comparisons: all of the report.
    """
    if not values.run.traits.finished:
        return {}
    reasons: dict[int, str] = {}
    around = modules_around(values.flow)
    for value in values.failed():
        op = values.flow.values[value].uses[0].op
        if not is_function(values.run.operations[op]):
            continue
        module = around[op]
        if module is not None and _agrees_of_others(values, module, comparisons):
            reasons |= dict.fromkeys(values.forget(value), REASON)
    return reasons


def _agrees_of_others(values: RunValues, module: int, comparisons: Sequence[Comparison]) -> bool:
    """True if all that a module gives agrees, and the other side gives it for other tokens."""
    outputs = values.run.operations[module].outputs
    made = (values.flow.at(module, "out", tensor.index) for tensor in outputs)
    known = [found for each in made if each and (found := values.evidence.get(each.number))]
    if not known or any(each.failed for each in known):
        return False
    pairs = (comparisons[index] for each in known for index in each.passed)
    return any(
        pair.golden is not None and pair.mine is not None and pair.golden.shape != pair.mine.shape
        for pair in pairs
    )
