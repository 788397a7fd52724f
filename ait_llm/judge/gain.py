"""What may come out of an operation, given the error that came in.

A fixed limit allows for the rounding of so many layers; a deep network, or one that amplifies, gets
beyond it without a fault. What an operation adds itself is independent of what came in, so that
their squares add up: an error of at most twice the incoming one hides an own error of no more than
1.7 times that, which is less than two healthy runs differ by there anyway. That is granted to what
cannot be recomputed, up to four times the limit, and twice as much to a module whose inside nobody
saw: gated products, sums over experts and attention each have a gain of their own. Operations that
were recomputed and are right may pass on what their measured amplification makes of the incoming
error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ait_llm.dumps.model import Operation
from ait_llm.judge.pairs import DISTANCE, ELEMENT
from ait_llm.judge.tolerance import ELEMENT_FACTOR
from ait_llm.program.roles import Role, is_operator, torch_role

_UNKNOWN_GAIN = 2.0
_GAIN_OF_MODULE = 4.0
_MOST = 4.0  # times the limit, without recomputation
# What is left of large values that nearly cancel has lost no more than four bits of theirs.
_MOST_CANCELLED = 16.0
# Errors that go in are amplified like a random change of all inputs; structure may add to that.
BEYOND_AMPLIFICATION = 3.0


_SINGLE = frozenset(
    {
        *(Role.NORM, Role.LINEAR, Role.EMBEDDING, Role.ROTARY, Role.ACTIVATION, Role.ADD),
        *(Role.MUL, Role.SPLIT, Role.SOFTMAX, Role.OPERATOR),
    }
)


def bounded_gain(operations: Iterable[Operation]) -> float:
    """By how much operations whose inside is not known may amplify an error, by their roles."""
    found = _UNKNOWN_GAIN
    for operation in operations:
        is_module = not operation.type.endswith("Operation") and not is_operator(operation)
        if is_module and torch_role(operation, has_modules=False) not in _SINGLE:
            found = _GAIN_OF_MODULE
    return found


def may_be_inherited(
    needed: Mapping[str, float],
    limits: Mapping[str, float],
    before: Mapping[str, float],
    gain: float = _UNKNOWN_GAIN,
) -> bool:
    """True if what came in explains an error beyond its limits, whatever was computed.

    Args:
        needed: of a pair that fails: the limits that it would just pass, by name.
        limits: those that it was judged by.
        before: the largest ``needed`` of the pairs that it was computed from.
        gain: see :func:`bounded_gain`.
    """
    return bool(needed) and all(
        value <= limits[name] or value <= min(_MOST * limits[name], gain * before.get(name, 0.0))
        for name, value in needed.items()
        if name in limits
    )


def may_be_cancelled(
    needed: Mapping[str, float], limits: Mapping[str, float], smaller: float
) -> bool:
    """True if an error beyond its limits is within those of what a value was computed from.

    Args:
        needed, limits: see :func:`may_be_inherited`.
        smaller: by how much the value is smaller than the largest of those.
    """
    most = min(smaller, _MOST_CANCELLED)
    return bool(needed) and all(
        value <= most * limits[name] for name, value in needed.items() if name in limits
    )


def is_amplified(
    needed: Mapping[str, float], before: Mapping[str, float], amplification: float, permitted: float
) -> bool:
    """True if operations that compute rightly make the error of a pair of what came in.

    Args:
        needed, before: see :func:`may_be_inherited`.
        amplification: of all operations in between together.
        permitted: the largest relative error that one of them may add itself.
    """
    if not math.isfinite(amplification) or DISTANCE not in needed:
        return False
    incoming = max(before.get(DISTANCE, 0.0), permitted)
    most = BEYOND_AMPLIFICATION * amplification * incoming
    element = max(ELEMENT_FACTOR * most, amplification * before.get(ELEMENT, 0.0))
    return needed[DISTANCE] <= most and needed.get(ELEMENT, 0.0) <= element
