"""Errors of the elements of one output, as the manual's report defines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ait_llm.core import DType

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.judge.standards.base import Output

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


# Elements at a time: some float64 tensors of them fit into the processor's cache.
_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of one output's elements, those that the operator leaves undefined left out.

    Attributes:
        level: what the manual demands of the output's type; None where it has none for it.
        count: elements that the operator defines.
        broken: how many are not finite on one side only, or differ there.
        over: how many have a relative error beyond the level's.
        over_absolute: how many have an absolute error beyond it.
        max_relative: the largest relative error; 0 of no elements.
        max_absolute: the largest absolute error.
        first_bad: flat index of the first element beyond the level, by the kind of error that it
            limits; None if there is none.
    """

    level: Level | None
    count: int
    broken: int = 0
    over: int = 0
    over_absolute: int = 0
    max_relative: float = 0.0
    max_absolute: float = 0.0
    first_bad: int | None = None

    def rate(self, *, absolute: bool = False) -> float:
        """Percentage of the elements within the level's error; 100 of none."""
        over = self.over_absolute if absolute else self.over
        return 100.0 * (1 - over / self.count) if self.count else 100.0


_known: WeakKeyDictionary[Output, Errors] = WeakKeyDictionary()


def errors_of(output: Output) -> Errors:
    """The errors of an output's elements by the level of its type."""
    if output not in _known:
        _known[output] = _errors_of(output)
    return _known[output]


def level_of(output: Output) -> Level | None:
    """What the manual demands of the output under test."""
    name = str(output.mine.dtype).removeprefix("torch.")
    return next((level for dtype, level in LEVELS.items() if dtype.torch_name == name), None)


def _errors_of(output: Output) -> Errors:
    import torch

    golden, mine = output.golden.reshape(-1), output.mine.reshape(-1)
    defined = None if output.defined is None else output.defined.reshape(-1)
    count = golden.numel() if defined is None else int(defined.sum())
    level = level_of(output)
    sums = Errors(level, count)
    for start in range(0, golden.numel(), _BLOCK):
        block = slice(start, start + _BLOCK)
        g, m = golden[block], mine[block]
        if g.dtype == m.dtype and _can_compare(g) and torch.equal(g, m):
            continue
        relative, absolute, broken = errors_between(g, m)
        if defined is not None:
            ignored = ~defined[block]
            relative.masked_fill_(ignored, 0.0)
            absolute.masked_fill_(ignored, 0.0)
            broken &= ~ignored
        sums = _add(sums, start, relative, absolute, int(broken.sum()))
    return sums


def _can_compare(values: Tensor) -> bool:
    """Torch has no equality for 8-bit floats."""
    return not values.dtype.is_floating_point or values.dtype.itemsize > 1


def _add(sums: Errors, start: int, relative: Tensor, absolute: Tensor, broken: int) -> Errors:
    over, over_absolute, first = sums.over, sums.over_absolute, sums.first_bad
    if sums.level is not None:
        far, far_absolute = relative > sums.level.error, absolute > sums.level.error
        over, over_absolute = over + int(far.sum()), over_absolute + int(far_absolute.sum())
        bad = far_absolute if sums.level.absolute else far
        if first is None and bool(bad.any()):
            first = start + int(bad.int().argmax())
    return replace(
        sums,
        broken=sums.broken + broken,
        over=over,
        over_absolute=over_absolute,
        max_relative=max(sums.max_relative, float(relative.max())),
        max_absolute=max(sums.max_absolute, float(absolute.max())),
        first_bad=first,
    )


def errors_between(golden: Tensor, mine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Relative and absolute errors of each element, and where they are broken.

    The relative error is ``|m - g| / |g|``; where ``|g|`` is at most 2**-23, ``|m - g| / 2**-7``.
    Both are float64, and infinite where exactly one side, or the sign, is not finite; those
    elements are the broken ones.
    """
    import torch

    g, m = golden.double(), mine.double()
    same = (g == m) | (torch.isnan(g) & torch.isnan(m))
    if golden.dtype == mine.dtype and not golden.dtype.is_floating_point:
        same = golden == mine  # float64 cannot tell all int64 apart
    broken = ~same & ~(torch.isfinite(g) & torch.isfinite(m))
    absolute = m.sub_(g).abs_() if mine.dtype != torch.float64 else (m - g).abs()
    absolute = absolute.masked_fill_(broken, torch.inf).masked_fill_(same, 0.0)
    size = g.abs()
    relative = absolute / size.masked_fill_(~(size > TINY_GOLDEN), TINY_DIVISOR)
    relative = relative.masked_fill_(broken, torch.inf).masked_fill_(same, 0.0)
    return relative, absolute, broken


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
