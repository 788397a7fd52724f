"""Numbers of the accuracy check: what counts as small, tolerances, classes of functions.

Source: the ecosystem's published accuracy standard, as its API accuracy check applies it. Types
that it does not name are held to the numbers of float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ApiClass = Literal["L0", "L1", "L2"]


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """What is asked of one type of output.

    Attributes:
        small: golden values up to this size are judged by their absolute error.
        small_atol: the one of the benchmark standard.
        rtol, atol: of the absolute threshold; ``atol`` for small values.
        floor: least denominator of a ratio of errors.
        far: units of the last place from which an element counts as far off.
        is_half: 16 bits or less.
    """

    small: float
    small_atol: float
    rtol: float
    atol: float
    floor: float
    far: float
    is_half: bool


_FLOAT32 = TypeLimits(2.0**-20, 2.0**-30, 2.0**-20, 2.0**-30, 2.0**-14, 32.0, False)
_LIMITS: Mapping[str, TypeLimits] = {
    "torch.float16": TypeLimits(2.0**-10, 1e-16, 2.0**-10, 2.0**-16, 2.0**-11, 1.0, True),
    "torch.bfloat16": TypeLimits(2.0**-10, 1e-16, 2.0**-8, 1e-16, 2.0**-8, 1.0, True),
}

_L1 = frozenset(
    {"embedding", "npu_fusion_attention", "npu_fusion_attention_grad", "scatter_", "scatter_add_"}
)
_L2 = frozenset(
    {
        *("addmm", "matmul", "mm", "layer_norm", "index", "one_hot", "sum", "nonzero", "GELU"),
        *("npu_cross_entropy_loss", "npu_cross_entropy_loss_backward"),
        *("npu_rms_norm", "npu_rms_norm_backward"),
    }
)

RATIOS: Mapping[ApiClass, Mapping[str, float]] = {
    "L0": {"max_relative": 10.0, "mean_relative": 2.0, "rmse": 2.0, "small_share": 2.0},
    "L1": {"max_relative": 5.0, "mean_relative": 1.5, "rmse": 1.5, "small_share": 2.0},
    "L2": {"max_relative": 2.0, "mean_relative": 1.2, "rmse": 1.2, "small_share": 2.0},
}
"""Largest permitted ratios of the device's errors to those of the benchmark, by class."""


def limits_of(dtype: str) -> TypeLimits:
    """The limits of ``torch.float16`` and the like."""
    return _LIMITS.get(dtype, _FLOAT32)


def class_of(api: str) -> ApiClass:
    """The class of a function by its name without prefix: ``matmul``."""
    return "L1" if api in _L1 else "L2" if api in _L2 else "L0"
