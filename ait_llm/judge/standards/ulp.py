"""Errors in units of the last place, with the shares of the ecosystem's accuracy checker.

Source: its ULP standard. The unit at golden b is ``2**(e - m)`` with ``e`` its exponent and ``m``
the bits of the significand; 16-bit outputs may have more than one unit in less than a thousandth of
their elements; float32 outputs may have a mean below 64 units, or more than 32 in less than one of
twenty. It was made for matrix products. A single wrong element passes it in a large tensor.
"""

from __future__ import annotations

from ait_llm.judge.standards.base import Judgement, Output, standards
from ait_llm.judge.standards.exact import exact
from ait_llm.judge.standards.rounding import spacing

_SHARE = 0.001
_SHARE_FLOAT32 = 0.05
_MEAN_FLOAT32 = 64.0
_FAR, _FAR_FLOAT32 = 1.0, 32.0


@standards.register("ulp")
def ulp(output: Output) -> Judgement:
    """Judge by units of the last place; integers by their bits."""
    import torch

    if not output.golden.dtype.is_floating_point:
        return exact(output)
    golden, mine = output.golden.double(), output.mine.double()
    same = (golden == mine) | (golden.isnan() & mine.isnan())
    units = (mine - golden).abs() / spacing(golden.nan_to_num(0.0), output.golden.dtype)
    units = units.nan_to_num(torch.inf, torch.inf).masked_fill(same, 0.0)
    if output.defined is not None:
        units = units.masked_fill(~output.defined, 0.0)
    if not units.numel():
        return Judgement(True, "no elements")
    wide = output.golden.dtype.itemsize > 2
    far = units > (_FAR_FLOAT32 if wide else _FAR)
    share, mean = float(far.double().mean()), float(units.mean())
    values = {"share": share, "mean": mean, "largest": float(units.max())}
    if wide:
        passed = mean < _MEAN_FLOAT32 or (share < _SHARE_FLOAT32 and not bool(units.isinf().any()))
        limit = f"mean<{_MEAN_FLOAT32:g} or {_SHARE_FLOAT32:.0%}(>{_FAR_FLOAT32:g} ulp)"
    else:
        passed = share < _SHARE and not bool(units.isinf().any())
        limit = f"{_SHARE:.1%}(>{_FAR:g} ulp)"
    if passed:
        return Judgement(True, limit, values=values)
    reason = (
        f"{share:.3%} of the elements are far off, {mean:.3g} units of the last place on average"
    )
    return Judgement(False, limit, reason, values, int(units.argmax()))
