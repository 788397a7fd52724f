"""The tensors that a call is run again with: the recorded ones, or some in the same range."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.api_values import ApiValue, tensor_of
from ait_llm.opcheck.api.unchecked import UncheckableError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SEED = 1234
# A statistics dump names sizes and holds none of their bytes; this is no reason to make them all.
MAX_ELEMENTS = 1 << 29
_BLOCK = 1 << 20


class TensorSource:
    """Makes the tensors of one call; the same ones each time.

    Args:
        root: folder of the dump, which its files may not leave.
    """

    def __init__(self, root: Path) -> None:
        import torch

        self._root = root
        self._left = MAX_ELEMENTS
        self._generator = torch.Generator().manual_seed(SEED)

    def __call__(self, value: ApiValue) -> Tensor:
        """The recorded values, else random ones.

        Raises:
            FormatError: its file is missing or damaged.
            UncheckableError: there is neither a file nor a statistic.
        """
        if value.file is not None:
            made = tensor_of(value, 0, self._root).torch().detach()
        else:
            made = generate(value, self._shape(value), self._generator)
        # Older captures do not say whether a gradient was taken.
        wanted = value.requires_grad is not False
        return made.requires_grad_(wanted and (made.is_floating_point() or made.is_complex()))

    def _shape(self, value: ApiValue) -> tuple[int, ...]:
        shape = tensor_of(value, 0, self._root).shape
        self._left -= math.prod(shape)
        if self._left < 0:
            raise UncheckableError(f"{value.label} of {list(shape)} is too large to be made up")
        return shape


def generate(value: ApiValue, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A random tensor in the recorded range.

    Floats are uniform between the recorded least and largest element, integers too; the first
    element is the least and the last the largest. Infinities are put there and the range between is
    that of the type; a recorded NaN makes all elements NaN.

    Args:
        value: a tensor as recorded.
        shape: its sizes.
        generator: of random numbers.

    Raises:
        UncheckableError: its type or range is not known.
    """
    import torch

    dtype = getattr(torch, value.recorded_dtype.rpartition(".")[2], None)
    if not isinstance(dtype, torch.dtype):
        raise UncheckableError(f"{value.label} has the type {value.recorded_dtype[:40]!r}")
    if math.prod(shape) == 0:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator) > 0
    low, high = _bound(value, "Min"), _bound(value, "Max")
    if low is None or high is None:
        raise UncheckableError(f"{value.label} has neither values nor a recorded range")
    if dtype.is_complex:
        angle = torch.rand(shape, generator=generator, dtype=torch.float64) * (2 * math.pi)
        size = _uniform(shape, torch.float64, low, high, generator)
        return torch.polar(size, angle).to(dtype)
    if not dtype.is_floating_point:
        return _integers(shape, dtype, low, high, generator)
    if math.isnan(low) or math.isnan(high):
        return torch.full(shape, math.nan, dtype=dtype)
    inner_low, inner_high = _finite(value, "Min", dtype), _finite(value, "Max", dtype)
    made = _uniform(shape, dtype, inner_low, inner_high, generator)
    flat = made.reshape(-1)
    flat[0], flat[-1] = low, high
    return flat.reshape(shape)


def _uniform(
    shape: tuple[int, ...], dtype: torch.dtype, low: float, high: float, generator: torch.Generator
) -> Tensor:
    import torch

    made = torch.empty(math.prod(shape), dtype=dtype)
    for start in range(0, made.numel(), _BLOCK):
        block = made[start : start + _BLOCK]
        share = torch.rand(block.shape, generator=generator, dtype=torch.float64)
        # Not `low + share * (high - low)`: the difference of two large numbers may be infinite.
        block.copy_(low * (1 - share) + high * share)
    return made.reshape(shape)


def _integers(
    shape: tuple[int, ...], dtype: torch.dtype, low: float, high: float, generator: torch.Generator
) -> Tensor:
    import torch

    info = torch.iinfo(dtype)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UncheckableError("an integer tensor has a recorded range that is no number")
    ends = [min(max(int(bound), info.min), info.max) for bound in (low, high)]
    first, last = min(ends), max(ends)
    top = min(last + 1, 2**63 - 1)  # randint takes no more
    first = max(first, -(2**63))
    made = torch.randint(min(first, top - 1), top, shape, generator=generator, dtype=torch.int64)
    flat = made.reshape(-1)
    flat[0], flat[-1] = first, last
    return flat.reshape(shape).to(dtype)


def _bound(value: ApiValue, name: str) -> Any:
    found = value.array.get(name)
    if isinstance(found, str):
        try:
            return float(found)
        except ValueError:
            return None
    return found if isinstance(found, (bool, int, float)) else None


def _finite(value: ApiValue, name: str, dtype: torch.dtype) -> float:
    """The recorded bound without infinities: as recorded apart, else the limit of the type."""
    import torch

    apart = _bound(value, f"{name}_except_inf_nan")
    found = float(apart if apart is not None else _bound(value, name))
    info = torch.finfo(dtype)
    return min(max(found, info.min), info.max)
