"""The four numbers of a tensor in a record: largest, smallest, mean and L2 norm.

They are those of the elements as real numbers, whatever the type: sums are in float64 on the host
and at least in float32 elsewhere. Unless full precision is asked for, mean and norm are then
rounded to the tensor's own type, as msprobe has them, so that dumps of both tools can be compared;
where that type cannot hold them, as the norm of many a float16 tensor, they are kept. A NaN
anywhere makes all four NaN. Of complex numbers they describe the magnitudes. Integers stay exact.
Truth values have no mean and no norm. Empty tensors, and those without data, have none of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from ait_llm.dump.pytorch.statistics import KnownStatistics, Reduced, byte_values, host_numbers

Four = tuple[float | int | bool | None, ...]
Rounding = Callable[[float], float]
NOTHING: Four = (None, None, None, None)

# Integers beyond this are not all exact in float64.
_EXACT = 2**53


def four_numbers(
    tensor: Tensor, known: KnownStatistics | None = None, *, exact: bool = True
) -> Four | Callable[[], Four]:
    """The numbers of a dense tensor, or for one on a device what waits for them.

    Args:
        tensor: strided, with data; it is not changed.
        known: results of the same step, for tensors that are passed on.
        exact: mean and norm are not rounded to the type of the tensor.

    Returns:
        maximum, minimum, mean and norm.
    """
    if not tensor.numel():
        return NOTHING
    rounded = None if exact else _ROUNDING.get(tensor.dtype)
    if not tensor.is_cpu:
        return _on_device(tensor, rounded)
    if not tensor.dim():
        return _of_one(tensor)
    dtype = tensor.dtype
    numbers = host_numbers(tensor, known)
    if numbers is None:
        deferred = _on_device(tensor, rounded)
        return deferred if isinstance(deferred, tuple) else deferred()
    high, low, mean, norm, nan, infinite = numbers
    if dtype == torch.bool:
        return bool(high), bool(low), None, None
    if nan:
        return (math.nan,) * 4
    if infinite:
        return _with_infinities(tensor)
    if rounded is not None:
        return high, low, rounded(mean), rounded(norm)
    if dtype.is_floating_point or dtype.is_complex:
        return high, low, mean, norm
    if max(abs(high), abs(low)) >= _EXACT:
        return int(tensor.max()), int(tensor.min()), mean, norm
    return int(high), int(low), mean, norm


def reduced_numbers(found: Reduced, *, exact: bool = True) -> Four:
    """The numbers of a tensor of which statistics alone are there; waits for its device.

    These leave the sign of infinities out: then only the norm is known.

    Args:
        found: the statistics.
        exact: mean and norm are not rounded to the type of the tensor.
    """
    high, low, mean, norm, nan, infinite = found.numbers.tolist()
    dtype = found.dtype
    if dtype == torch.bool:
        return bool(high), bool(low), None, None
    if nan:
        return (math.nan,) * 4
    if infinite:
        return None, None, None, math.inf
    if dtype.is_floating_point or dtype.is_complex:
        rounded = None if exact else _ROUNDING.get(dtype)
        if rounded is not None:
            mean, norm = rounded(mean), rounded(norm)
        return high, low, mean, norm
    return int(high), int(low), mean, norm


def _rounding(number: struct.Struct, bits: struct.Struct, dropped: int) -> Rounding:
    """Rounding to the nearest number of a format, ties to even; to itself where that is inf or 0.

    Args:
        number: the format.
        bits: the unsigned integer of its size.
        dropped: of its last bits, which the type does not have.
    """
    half, last = (1 << dropped >> 1) - 1, (1 << dropped) - 1

    def rounded(value: float) -> float:
        try:
            data = number.pack(value)
        except OverflowError:
            return value
        if dropped:
            (word,) = bits.unpack(data)
            word += half + (word >> dropped & 1)
            data = bits.pack(word & ~last)
        (result,) = number.unpack(data)
        return value if math.isinf(result) or not result else float(result)

    return rounded


_FLOAT = struct.Struct("<f"), struct.Struct("<I")
_ROUNDING = {
    torch.float32: _rounding(*_FLOAT, 0),
    torch.float16: _rounding(struct.Struct("<e"), struct.Struct("<H"), 0),
    torch.bfloat16: _rounding(*_FLOAT, 16),
}


def _of_one(tensor: Tensor) -> Four:
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        tensor = tensor.detach().float()
    value = tensor.item()
    if isinstance(value, bool):
        return value, value, None, None
    if isinstance(value, complex):
        value = abs(value)
    return value, value, value, abs(value)


def _with_infinities(tensor: Tensor) -> Four:
    with torch.no_grad():
        if tensor.dtype.is_complex:
            tensor = tensor.abs()
        elif tensor.dtype.itemsize == 1:
            tensor = tensor.float()
        high, low = float(tensor.max()), float(tensor.min())
    both = high == math.inf and low == -math.inf
    mean = math.nan if both else high if high == math.inf else low
    return high, low, mean, math.inf


# Types that float32 cannot hold.
_WIDE = tuple(
    getattr(torch, name)
    for name in ("float64", "complex128", "int64", "int32", "uint32", "uint64")
    if hasattr(torch, name)
)


def _on_device(tensor: Tensor, rounded: Rounding | None) -> Four | Callable[[], Four]:
    """Start the reductions where the tensor is; the device is waited for only afterwards."""
    dtype = tensor.dtype
    with torch.no_grad():
        if dtype == torch.bool:
            pair = torch.stack((tensor.any(), tensor.all()))
            return lambda: (*(bool(value) for value in pair.tolist()), None, None)
        x = tensor.detach()
        exact: Tensor | None = None
        if dtype.is_complex:
            x = x.abs()
        elif not dtype.is_floating_point:
            exact = torch.stack((x.max(), x.min()))
        elif dtype.itemsize == 1 and byte_values(dtype) is None:
            return NOTHING
        x = x.to(torch.float64 if dtype in _WIDE else torch.float32)
        high, low = x.max(), x.min()
        # With the largest magnitude taken out, the squares neither overflow nor vanish.
        largest = torch.maximum(high.abs(), low.abs())
        scale = torch.where((largest > 0) & torch.isfinite(largest), largest, 1.0)
        mean = (x / scale).mean() * scale
        norm = torch.linalg.vector_norm(x / scale) * scale
        four = torch.stack((high, low, mean, norm))

    def wait() -> Four:
        high, low, mean, norm = four.tolist()
        if high != high:
            return (math.nan,) * 4
        if rounded is not None:
            return high, low, rounded(mean), rounded(norm)
        if exact is not None:
            high, low = exact.tolist()
        if not tensor_dim and exact is not None:
            return high, low, high, abs(high)
        return high, low, mean, norm

    tensor_dim = tensor.dim()
    return wait
