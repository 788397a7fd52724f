"""Errors against those of a plain computation in the same precision.

Source: the dual-benchmark standard of the ecosystem's accuracy checker. Both the output and what a
CPU computes in the device's precision are measured against the exact result; each ratio of the two
has a limit. Denominators have a floor by data type, so that a benchmark that happens to be exact
demands nothing impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ait_llm.judge.standards.base import Judgement, Output, standards
from ait_llm.judge.standards.exact import exact
from ait_llm.judge.standards.rounding import exact_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Level 1 of its three guard levels, the one of attention.
LIMITS: Mapping[str, float] = {"max_relative": 5.0, "mean_relative": 1.5, "rmse": 1.5, "small": 2.0}
_LIMIT = "error ratios<=" + "/".join(f"{limit:g}" for limit in LIMITS.values())


@standards.register("benchmark")
def benchmark(output: Output) -> Judgement:
    """Judge by ratios of errors; integers by their bits."""
    from ait_llm.opcheck.golden import DEVICE

    if not output.golden.dtype.is_floating_point:
        return exact(output)
    truth = exact_of(output)
    peer, mine = output.in_arithmetic(DEVICE).double(), output.mine.double()
    use = truth.isfinite() & peer.isfinite()
    strange = ~(mine == peer) & ~(mine.isnan() & peer.isnan()) & (~use | ~mine.isfinite())
    if output.defined is not None:
        use, strange = use & output.defined, strange & output.defined
    if bool(strange.any()):
        count, first = int(strange.sum()), int(strange.reshape(-1).int().argmax())
        return Judgement(False, _LIMIT, f"{count} elements are not finite on one side", {}, first)
    if not bool(use.any()):
        return Judgement(True, _LIMIT)
    error = (mine - truth).abs()
    measured = _measure(error[use], truth[use], output.golden.dtype)
    allowed = _measure((peer - truth).abs()[use], truth[use], output.golden.dtype)
    floors = _floors(output.golden.dtype, truth[use])
    ratios = {name: measured[name] / max(allowed[name], floors[name]) for name in LIMITS}
    over = [name for name in LIMITS if ratios[name] > LIMITS[name]]
    if not over:
        return Judgement(True, _LIMIT, values=ratios)
    reason = ", ".join(f"{name} is {ratios[name]:.3g} times the benchmark's" for name in over)
    worst = int(error.masked_fill(~use, 0.0).reshape(-1).argmax())
    return Judgement(False, _LIMIT, reason, ratios, worst)


def _small(dtype: torch.dtype) -> float:
    return 2.0**-10 if dtype.itemsize <= 2 else 2.0**-20


def _floor(dtype: torch.dtype) -> float:
    import torch

    return {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 2.0**-14)


def _floors(dtype: torch.dtype, truth: Tensor) -> Mapping[str, float]:
    """Floors of the denominators; the one of the RMSE is relative to golden's own."""
    relative = _floor(dtype)
    size = float(truth.square().mean().sqrt())
    return {
        "max_relative": relative,
        "mean_relative": relative,
        "rmse": max(relative * size, 2.0**-120),
        "small": 1 / truth.numel(),
    }


def _measure(error: Tensor, truth: Tensor, dtype: torch.dtype) -> Mapping[str, float]:
    small = truth.abs() <= _small(dtype)
    relative = (error / truth.abs().clamp(min=_small(dtype)))[~small]
    atol = 2.0**-16 if dtype.itemsize <= 2 else 2.0**-30
    return {
        "max_relative": float(relative.max()) if relative.numel() else 0.0,
        "mean_relative": float(relative.mean()) if relative.numel() else 0.0,
        "rmse": float(error.square().mean().sqrt()),
        "small": float(((error > atol) & small).double().mean()),
    }
