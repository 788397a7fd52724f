"""Products of which both sides are floats of eight bits, the input rounded as it comes.

Neighbours in a row of the input share a scale, which the largest of them has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.opcheck.golden.base import SOME_SHORT
from ait_llm.opcheck.golden.modules.quantised import in_type
from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

Single = NDArray[np.float32]
_MOST = 448.0  # of E4M3
_LEAST = 1e-4  # libraries keep the largest of a block above numbers from here to 1e-12
_STEP = 2.0**-21  # relative: what a kernel in float32 may make of a quotient
_BLOCK = 128
_RESULT = "output"


@dataclass(frozen=True, slots=True)
class RoundedInputs:
    """``e4m3(x) . weight' + bias``.

    A quotient between two floats may fall on either of them: at every result that some of these
    choices allow, the program is right.

    Attributes:
        given: what is known of the module.
        block: neighbours with one scale; 0 for all of a row.
        powers: scales are raised to powers of two.
    """

    given: Given
    block: int
    powers: bool
    # Kernels may round what they add up, or scale, on the way.
    roundings: ClassVar[int] = 1

    @property
    def short_sums(self) -> int:
        """Scales of blocks are multiplied in float32."""
        return SOME_SHORT if self.block else self.given.weights["weight"][1]

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        x, weight = only(tensors, self.given), tensors["weight"]
        low, high, _ = self._rounded(x)
        middle, half = ((high + low) / 2).to(weight.dtype), ((high - low) / 2).to(weight.dtype)
        found, either = functional.linear(middle, weight), functional.linear(half, weight.abs())
        least, most = (self._biased(each, tensors, x) for each in (found - either, found + either))
        mine = next((tensors[name] for name in tensors if name.startswith(_RESULT)), least)
        if mine.shape != least.shape:
            return least
        mine = mine.to(least.dtype)
        nearest = torch.where(mine > most, most, least)  # of what is no number, too
        return torch.where((mine >= least) & (mine <= most), mine, nearest)

    def unclear(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Rows with a block that is next to nothing, whose scale libraries choose as they like."""
        return self._rounded(only(tensors, self.given))[2]

    def others(self) -> Sequence[Compute]:
        """With scales of the other kind."""
        return [replace(self, powers=not self.powers)]

    def _biased(self, found: Tensor, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        made = found.to(x.dtype)
        if "bias" not in tensors:
            return made
        dtype = getattr(torch, self.given.types[self.given.inputs[0]])
        # Times one: a step of its own, after which there is a rounding.
        return made * 1.0 + in_type(tensors["bias"], dtype).to(x.dtype)

    def _rounded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Least and largest of what inputs are rounded to; rows ``[..., 1]`` that tell neither."""
        with _disable_current_modes(), np.errstate(divide="ignore", invalid="ignore"):
            values = x.detach().float().numpy()
            blocks = values.reshape(*values.shape[:-1], -1, self.block or values.shape[-1])
            largest = np.abs(blocks).max(-1, keepdims=True)
            unsure = ((largest < _LEAST) & (largest > 0)) | ~np.isfinite(largest)
            ways = [self._at(blocks, largest, way * _STEP) for way in (0, -1, 1)]
            low, high = np.minimum.reduce(ways), np.maximum.reduce(ways)
            return (
                torch.from_numpy(low.reshape(values.shape)),
                torch.from_numpy(high.reshape(values.shape)),
                torch.from_numpy(unsure.any((-2, -1))[..., None]),
            )

    def _at(self, blocks: Single, largest: Single, off: float) -> Single:
        """Rounded by a kernel whose division is so far off."""
        scale = largest.astype(np.float64) / _MOST
        quotient = 1 + off
        if self.powers:
            mantissa, power = np.frexp(scale * quotient)
            scale, quotient = np.ldexp(1.0, power - (mantissa == 0.5)), 1.0
        scale = np.where(scale > 0, scale, 1.0)
        wide = np.clip(blocks / scale * quotient, -_MOST, _MOST).astype(np.float32)
        small = wide.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        found: Single = small * scale.astype(np.float32)
        return found


@module("FP8Linear", weights=True, results=True)
def _of_transformers(given: Given) -> Compute | None:
    """The product of ``transformers`` with scales of blocks of 128, or one for the whole weight.

    Source: ``integrations/finegrained_fp8.py`` and ``deepgemm.py`` of transformers 5, and
    ``matmul.py`` of the kernel ``finegrained-fp8``.
    """
    block, sizes = given.definition.get("block_size", 0), _sizes(given)
    if (
        (block is not None and block not in ([_BLOCK, _BLOCK], [*sizes]))
        or given.definition.get("activation_scheme") != "dynamic"
        or given.types.get(given.inputs[0] if given.inputs else "") not in ("bfloat16", "float16")
        or "weight" not in given.dequantised
        or not given.takes(["weight"], ["bias"])
        or given.definition.get("has_bias") is not ("bias" in given.weights)
        or given.weights["weight"] != sizes
    ):
        return None
    is_whole = block is None or block == [*sizes]
    if not is_whole and sizes[1] % _BLOCK:
        return None
    return RoundedInputs(given, 0 if is_whole else _BLOCK, powers=False)


def _sizes(given: Given) -> tuple[int, int]:
    return int(given.number("out_features") or 0), int(given.number("in_features") or 0)
