"""Signatures of parameters that a kernel has wrong: epsilon, softmax scale.

The golden operator is computed again with other values of the parameter; the one that leaves least
is refined between its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ait_llm.diagnosis.call import Call
from ait_llm.diagnosis.kinds import Kind
from ait_llm.diagnosis.residual import Array, Hypothesis, Residual

_EPSILONS = (0.0, *(10.0**power for power in range(-8, 0)))
_REFINEMENTS = 12
_GOLDEN_SECTION = (math.sqrt(5) - 1) / 2
_SCALES = ("qkScale", "scaleValue", "tor")
_NEAR = 1e-3  # a refined value this close to a plain one is that one


def parameters(call: Call, residual: Residual, output: int) -> Iterator[Hypothesis]:
    """Other values of epsilon and of the factor of attention scores."""
    for path, value in _numbers(call.params):
        name = path[-1]
        if name.lower() in ("epsilon", "eps") and value > 0:
            plain = [*_EPSILONS, *(value * 10.0**power for power in (-3, -2, -1, 1, 2, 3))]
            yield from _fitted(call, residual, output, path, value, plain, Kind.EPSILON)
        elif name in _SCALES and value > 0:
            plain = [value**2, value**0.5, 1.0, 0.5, value / 2, value * 2, value**4]
            yield from _fitted(call, residual, output, path, value, plain, Kind.SOFTMAX_SCALE)


def _numbers(params: Mapping[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, *path, name)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (*path, name), float(value)


def _with(params: Mapping[str, Any], path: tuple[str, ...], value: float) -> Mapping[str, Any]:
    name, rest = path[0], path[1:]
    return {**params, name: _with(params[name], rest, value) if rest else value}


def _fitted(
    call: Call,
    residual: Residual,
    output: int,
    path: tuple[str, ...],
    own: float,
    plain: list[float],
    kind: Kind,
) -> Iterator[Hypothesis]:
    tried: dict[float, tuple[float, Array]] = {}

    def bits(value: float) -> float:
        if value not in tried:
            values = call.with_params(_with(call.params, path, value)).predicted(output)
            if values is None:
                return math.inf
            tried[value] = (residual.bits(values), values)
        return tried[value][0]

    candidates = [value for value in dict.fromkeys(plain) if value != own]
    best = min(candidates, key=bits)
    if bits(best) >= residual.bits_of_nothing:
        return
    lower = max((value for value in (*candidates, own) if 0 < value < best), default=best / 10)
    upper = min((value for value in (*candidates, own) if value > best), default=best * 10)
    if best:
        refined = _search(bits, lower, upper)
        # A plain number is believed unless another one explains clearly more.
        if abs(refined / best - 1) > _NEAR and bits(refined) < bits(best) - 8:
            best = refined
    name = path[-1]
    text = f"it computes as with {name} {best:.4g} instead of {own:.4g}"
    yield Hypothesis(kind, tried[best][1], text, {name: best})


def _search(bits: Any, lower: float, upper: float) -> float:
    """Golden-section search for the least, in the logarithm."""
    low, high = math.log(lower), math.log(upper)
    left = high - _GOLDEN_SECTION * (high - low)
    right = low + _GOLDEN_SECTION * (high - low)
    for _ in range(_REFINEMENTS):
        if bits(math.exp(left)) <= bits(math.exp(right)):
            high, right = right, left
            left = high - _GOLDEN_SECTION * (high - low)
        else:
            low, left = left, right
            right = low + _GOLDEN_SECTION * (high - low)
    return math.exp((low + high) / 2)
