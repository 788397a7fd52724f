"""From the errors of one output to its verdict, by the standard that the user chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ait_llm.apicheck.metrics import Metrics
from ait_llm.apicheck.outcome import ERROR, PASS, WARNING, Status
from ait_llm.core import Registry
from ait_llm.judge.api_limits import RATIOS, ApiClass, TypeLimits


@dataclass(frozen=True, slots=True)
class Measured:
    """One output of floats, for a standard to judge.

    Attributes:
        metrics: the device's errors.
        limits: of the output's type.
        api_class: of the function.
        benchmark: errors of a CPU run in the device's precision; None if none was made.
    """

    metrics: Metrics
    limits: TypeLimits
    api_class: ApiClass = "L0"
    benchmark: Metrics | None = None


CONTRACT = "contract"

Standard = Callable[[Measured], tuple[Status, str]]
"""Returns the verdict and why it is not a pass."""

standards: Registry[Standard] = Registry("accuracy standard")


@standards.register("default")
def default(found: Measured) -> tuple[Status, str]:
    """Cosine, then the absolute error, then shares of relative errors; the first decides.

    A large error in few elements of a large output passes, and so does any error below 0.001 whose
    direction is right.
    """
    m = found.metrics
    if m.strange:
        return ERROR, f"{m.strange} elements are not finite on one side only, or differ there"
    if m.is_one_zero:
        return ERROR, "one side is zero everywhere"
    if m.cosine is not None and not m.cosine > 0.99:
        return ERROR, f"cosine similarity {m.cosine:.6g} is not above 0.99"
    if _of(m.max_absolute) < 0.001:
        return PASS, ""
    if found.limits.is_half:
        if not _of(m.hundredth) > 0.99:
            return ERROR, _few(m.hundredth, "0.01", "99")
        if _of(m.thousandth) > 0.999:
            return PASS, ""
        note = "" if m.unequal else "; yet each is golden rounded to its type"
        return WARNING, _few(m.thousandth, "0.001", "99.9") + note
    if not _of(m.thousandth) > 0.999:
        return ERROR, _few(m.thousandth, "0.001", "99.9")
    if _of(m.ten_thousandth) > 0.9999:
        return PASS, ""
    return WARNING, _few(m.ten_thousandth, "0.0001", "99.99")


@standards.register(CONTRACT)
def contract(found: Measured) -> tuple[Status, str]:
    """What rounding permits of the call's own inputs, see :mod:`ait_llm.apicheck.contract`.

    For what that cannot be computed of, the limits of ``default``.
    """
    return default(found)


@standards.register("absolute")
def absolute(found: Measured) -> tuple[Status, str]:
    """Every element within ``rtol``, small ones within ``atol``, and finite where golden is."""
    m = found.metrics
    parts = (
        (m.nonfinite_share, "of the elements that are not finite differ"),
        (m.relative_share, f"of the elements have a relative error over {found.limits.rtol:.3g}"),
        (m.absolute_share, f"of the small elements have an error over {found.limits.atol:.3g}"),
    )
    reasons = [f"{_of(share):.3%} {what}" for share, what in parts if _of(share) > 0]
    return (ERROR, "; ".join(reasons)) if reasons else (PASS, "")


@standards.register("ulp")
def ulp(found: Measured) -> tuple[Status, str]:
    """Units of the last place; made for products, so one wrong element of many passes."""
    m, limits = found.metrics, found.limits
    if m.strange:
        return ERROR, f"{m.strange} elements are not finite on one side only, or differ there"
    share, mean = _of(m.ulp_share), _of(m.mean_ulp)
    if share < 0.001 if limits.is_half else mean < 64 or share < 0.05:
        return PASS, ""
    return ERROR, (
        f"{share:.3%} of the elements are more than {limits.far:g} units of the last place off, "
        f"{mean:.4g} on average"
    )


@standards.register("binary")
def binary(found: Measured) -> tuple[Status, str]:
    """Every element equal to golden rounded to the output's type."""
    share = _of(found.metrics.unequal)
    return (ERROR, f"{share:.3%} of the elements differ") if share else (PASS, "")


@standards.register("thousandth")
def thousandth(found: Measured) -> tuple[Status, str]:
    """99.9 % of the elements with a relative error below 0.001."""
    share = _of(found.metrics.thousandth)
    return (PASS, "") if share >= 0.999 else (ERROR, _few(share, "0.001", "99.9"))


@standards.register("benchmark")
def benchmark(found: Measured) -> tuple[Status, str]:
    """Errors against those of a CPU run in the device's precision; limits by class of function."""
    assert found.benchmark is not None, "the benchmark standard needs a benchmark"
    if found.metrics.strange:
        count = found.metrics.strange
        return ERROR, f"{count} elements are not finite on one side only, or differ there"
    reasons = []
    for name, limit in RATIOS[found.api_class].items():
        ratio = error_ratio(
            _of(getattr(found.metrics, name)),
            _of(getattr(found.benchmark, name)),
            found.limits.floor,
        )
        if ratio > limit:
            reasons.append(f"{name} is {ratio:.3g} times the benchmark's, over {limit:g}")
    return (ERROR, "; ".join(reasons)) if reasons else (PASS, "")


def error_ratio(mine: float, benchmark: float, floor: float) -> float:
    """``|mine| / max(|benchmark|, floor)``."""
    return abs(mine) / max(abs(benchmark), floor)


def _of(value: float | None) -> float:
    return 0.0 if value is None else value


def _few(share: float | None, error: str, needed: str) -> str:
    return (
        f"only {_of(share):.3%} of the elements have a relative error below {error}, "
        f"over {needed} % are needed"
    )
