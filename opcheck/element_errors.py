"""Errors of the elements of one output, as the manual's report defines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.core import DType

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.standards.base import Output

# Below this size of golden the manual's tool takes no relative error; the float32 epsilon.
TINY_GOLDEN = 2.0**-23
# What it divides by instead, in its first release: the bfloat16 epsilon.
TINY_DIVISOR = 2.0**-7


@dataclass(frozen=True, slots=True)
class Level:
    """What the manual demands of a data type.

    Attributes:
        error: largest error of an element.
        rate: share of the elements in percent that must keep it.
        absolute: ``error`` is an absolute one, in steps of a quantised integer.
    """

    error: float
    rate: float
    absolute: bool = False

    @property
    def text(self) -> str:
        """``99.9%(error<0.001)``, as the report prints it."""
        kind = "abs error<=" if self.absolute else "error<"
        return f"{self.rate:g}%({kind}{self.error:g})"


_WHOLE = Level(1e-4, 99.99)
_STEP = Level(1.0, 99.9, absolute=True)
LEVELS: Mapping[DType, Level] = {
    DType.FLOAT64: _WHOLE,
    DType.FLOAT32: _WHOLE,
    DType.FLOAT16: Level(1e-3, 99.9),
    DType.BFLOAT16: Level(4e-3, 99.6),
    DType.INT64: _WHOLE,
    DType.UINT64: _WHOLE,
    DType.INT32: _WHOLE,
    DType.UINT32: _WHOLE,
    DType.INT16: _STEP,
    DType.UINT16: _STEP,
    DType.INT8: _STEP,
    DType.UINT8: Level(1.0, 99.0, absolute=True),
    DType.BOOL: Level(1e-4, 100.0),
}


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of one output's elements; those that the operator leaves undefined have none.

    Attributes:
        relative: ``|m - g| / |g|``; where ``|g|`` is at most 2**-23, ``|m - g| / 2**-7``. float64,
            flat, infinite where exactly one side, or the sign, is not finite.
        absolute: ``|m - g|``, likewise.
        broken: elements that are not finite on one side only, or differ there.
        count: elements that the operator defines.
    """

    relative: Tensor
    absolute: Tensor
    broken: Tensor
    count: int

    def rate(self, level: Level, *, absolute: bool = False) -> float:
        """Percentage of the defined elements within a level's error; 100 of none."""
        if not self.count:
            return 100.0
        errors = self.absolute if absolute else self.relative
        return 100.0 * (1 - int((errors > level.error).sum()) / self.count)

    def worst(self, *, absolute: bool = False) -> int:
        """Flat index of the largest error."""
        return int((self.absolute if absolute else self.relative).argmax())

    def largest(self, *, absolute: bool = False) -> float:
        """The largest error; 0 of no elements."""
        errors = self.absolute if absolute else self.relative
        return float(errors.max()) if errors.numel() else 0.0


def errors_of(output: Output) -> Errors:
    """The errors of an output's elements."""
    import torch

    golden, mine = output.golden.reshape(-1), output.mine.reshape(-1)
    g, m = golden.double(), mine.double()
    same = (g == m) | (torch.isnan(g) & torch.isnan(m))
    if golden.dtype == mine.dtype and not golden.dtype.is_floating_point:
        same = golden == mine  # float64 cannot tell all int64 apart
    broken = ~same & ~(torch.isfinite(g) & torch.isfinite(m))
    absolute = (m - g).abs()
    absolute = torch.where(broken, torch.inf, absolute).masked_fill(same, 0.0)
    size = g.abs()
    relative = absolute / torch.where(size > TINY_GOLDEN, size, TINY_DIVISOR)
    relative = torch.where(broken, torch.inf, relative).masked_fill(same, 0.0)
    count = golden.numel()
    if output.defined is not None:
        ignored = ~output.defined.reshape(-1)
        relative, absolute = relative.masked_fill(ignored, 0.0), absolute.masked_fill(ignored, 0.0)
        broken = broken & ~ignored
        count -= int(ignored.sum())
    return Errors(relative, absolute, broken, count)


def cosine_similarity(output: Output) -> float:
    """Cosine of the flattened tensors in float64; 1 if both are all zero, 0 if only one is."""
    g, m = _defined(output)
    if not g.any() and not m.any():
        return 1.0
    scale_g, scale_m = g.abs().max(), m.abs().max()
    if not scale_g or not scale_m:
        return 0.0
    g, m = g / scale_g, m / scale_m  # squares of large values would overflow
    return float((g * m).sum() / (g.norm() * m.norm()))


def kl_divergence(output: Output) -> float:
    """``sum(p * (log p - log q))`` of the softmax of golden, p, and of mine, q; at least 0."""
    import torch

    g, m = _defined(output)
    if not g.numel():
        return 0.0
    p, q = torch.log_softmax(g, 0), torch.log_softmax(m, 0)
    return max(0.0, float((p.exp() * (p - q)).sum()))


def _defined(output: Output) -> tuple[Tensor, Tensor]:
    g, m = output.golden.reshape(-1).double(), output.mine.reshape(-1).double()
    if output.defined is None:
        return g, m
    keep = output.defined.reshape(-1)
    return g[keep], m[keep]
