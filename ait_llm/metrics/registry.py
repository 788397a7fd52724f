"""The metrics by name: each a function of the totals of one pass.

g is golden, m mine, both flattened in row-major order, N the number of places where both are
finite; only these count. Where neither side is finite and both say the same (NaN and NaN, the same
infinity) a place is equal and left out; other places with a value that is not finite are counted
by the caller and fail any verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ait_llm.core import Registry
from ait_llm.metrics.totals import Totals

Metric = Callable[[Totals], float]
metrics: Registry[Metric] = Registry("metric")

# In the order of the manual's report, then ours.
METRIC_NAMES = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
    "max_ulp_error",
    "ulp_error_rate",
    "pass_rate",
)
ULP_METRICS = frozenset({"max_ulp_error", "ulp_error_rate"})


class Undefined(ValueError):
    """A metric has no value; the message is the reason, as a clause."""


@metrics.register("cosine_similarity")
def cosine_similarity(t: Totals) -> float:
    """``g.m / (|g| |m|)``; 1 for two zero tensors as in the manual, undefined for one."""
    g, m = math.sqrt(t.golden_squares), math.sqrt(t.my_squares)
    if g == 0 and m == 0:
        return 1.0
    if g == 0:
        raise Undefined("all the values in golden are zeros")
    if m == 0:
        raise Undefined("all the values in mine are zeros")
    if t.squares < 0.25 * min(t.golden_squares, t.my_squares):
        # |m - g|^2 = |g|^2 + |m|^2 - 2 g.m, solved for what is missing to 1: exact for near sides
        return min(1.0, 1.0 - (t.squares - (m - g) ** 2) / (2 * g * m))
    return max(-1.0, min(1.0, t.dot / (g * m)))


@metrics.register("max_relative_error")
def max_relative_error(t: Totals) -> float:
    """Largest ``abs(m - g) / max(abs(g), 2**-23)``."""
    return t.max_relative


@metrics.register("mean_relative_error")
def mean_relative_error(t: Totals) -> float:
    """Mean of ``abs(m - g) / max(abs(g), 2**-23)``."""
    return t.sum_relative / t.finite


@metrics.register("max_absolute_error")
def max_absolute_error(t: Totals) -> float:
    """Largest ``abs(m - g)``, whatever g is."""
    return t.max_absolute


@metrics.register("mean_absolute_error")
def mean_absolute_error(t: Totals) -> float:
    """Mean of ``abs(m - g)``."""
    return t.sum_absolute / t.finite


@metrics.register("kl_divergence")
def kl_divergence(t: Totals) -> float:
    """``sum P ln(P / Q)``, P and Q the softmax of all of golden and of all of mine.

    With weights w = exp(g - R), sum Z, d = m - g, E the mean under P:
    ``KL = ln E[exp(d)] - E[d] = E[exp(d) - 1 - d] - (x - ln(1 + x))``, ``x = E[exp(d) - 1]``.
    Of two sides that agree well this keeps all digits, the difference of logarithms none.
    """
    linear = t.kl_linear / t.kl_weights
    x = linear + t.kl_excess / t.kl_weights
    if abs(x) <= 0.5 and abs(linear) <= 1:  # beyond, x itself has lost its digits
        return max(0.0, t.kl_excess / t.kl_weights - _missing_to_logarithm(x))
    mine = t.kl_my_reference + math.log(t.kl_my_weights)
    golden = t.kl_reference + math.log(t.kl_weights)
    return max(0.0, mine - golden - linear)


def _missing_to_logarithm(x: float) -> float:
    """``x - log(1 + x)``, without cancellation near zero."""
    if abs(x) > 0.01:
        return x - math.log1p(x)
    return x * x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x * (1 / 6 - x / 7)))))


@metrics.register("relative_euclidean_distance")
def relative_euclidean_distance(t: Totals) -> float:
    """``|m - g| / |g|``, Euclidean norms; 0 for two zero tensors, undefined if only golden is."""
    if t.golden_squares == 0:
        if t.squares == 0:
            return 0.0
        raise Undefined("all the values in golden are zeros")
    return math.sqrt(t.squares / t.golden_squares)


@metrics.register("max_ulp_error")
def max_ulp_error(t: Totals) -> float:
    """Largest distance in representable numbers of the coarser type."""
    return t.max_ulp


@metrics.register("ulp_error_rate")
def ulp_error_rate(t: Totals) -> float:
    """Share of places further apart than the limit; unequal places that are not finite count."""
    return (t.beyond_ulp + t.bad) / (t.finite + t.bad)


@metrics.register("pass_rate")
def pass_rate(t: Totals) -> float:
    """Share of places within ``atol + rtol * abs(g)``; unequal ones not finite are outside."""
    return t.passed / (t.finite + t.bad)
