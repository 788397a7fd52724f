"""What keeping the weights of a module in few bits has cost, for dumps without the weights."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake

from ait_llm.dump.pytorch.beside import has_experts_of_four_bits, packed_weight
from ait_llm.dump.pytorch.layouts import dense_parts

# Numbers that are looked at, of neighbours in places far apart: a weight of a large model has a
# hundred million, and a sample of so many tells the sum of squares to one percent.
_SAMPLES, _STRETCH = 1 << 14, 64
# Relative Euclidean distance of rounding where it cannot be told of the stored numbers: of four
# bits in groups whose maximum is three and a half times their root mean square, and of floats of
# eight, whose step is at most an eighth or a quarter of the number.
_FOUR_BITS = 0.14
_KNOWN = {
    torch.uint8: _FOUR_BITS,
    torch.int32: _FOUR_BITS,
    torch.float8_e4m3fn: 1 / 8 / math.sqrt(12),
    torch.float8_e5m2: 1 / 4 / math.sqrt(12),
}
_OF_FOUR_BITS = ("torch.quint4x2", "torch.quint2x4")  # by name: torch is about to drop them
_ROWS = 64  # of a tensor that torch quantised, of which real numbers are made
_FLOAT16 = 2.0**-11  # at most
# By id: a module need not have a hash. The reference takes the entry away with the module.
_KNOWN_MODULES: dict[int, tuple[weakref.ref[nn.Module], float]] = {}


def rounding(module: nn.Module) -> float:
    """Relative Euclidean distance that rounding has cost the weights of one module.

    Args:
        module: its own parameters count, and buffers that are called a weight. Those of another
            floating type of 16 bits or more do not: what is computed of them has that type.

    Returns:
        Of several weights that of the one it cost most; 0 where none is kept in few bits, or where
        a module does not let it be seen.
    """
    try:
        return _rounding(module)
    except Exception:  # noqa: BLE001  # code of who made the module; the program must go on
        return 0.0


def known_rounding(module: nn.Module) -> float:
    """The same, looked at once for each module."""
    key = id(module)
    known = _KNOWN_MODULES.get(key)
    if known is None or known[0]() is not module:
        gone = weakref.ref(module, lambda _: _KNOWN_MODULES.pop(key, None))
        known = _KNOWN_MODULES[key] = (gone, rounding(module))
    return known[1]


def _rounding(module: nn.Module) -> float:
    if has_experts_of_four_bits(module):
        return _FOUR_BITS
    packed = packed_weight(module)
    if packed is not None:  # and what is computed of it is float32
        return _of_quantised(packed) if packed.is_quantized else _FLOAT16
    return max(map(_of_stored, _weights(module)), default=0.0)


def _weights(module: nn.Module) -> Iterator[torch.Tensor]:
    buffers = (each for name, each in module._buffers.items() if "weight" in name)
    for tensor in (*module._parameters.values(), *buffers):
        if tensor is not None and not tensor.is_meta and not is_fake(tensor):
            yield tensor


def _of_stored(tensor: torch.Tensor) -> float:
    if tensor.is_quantized:
        return _of_quantised(tensor)
    try:
        parts, _ = dense_parts(tensor)
    except Exception:  # noqa: BLE001  # code of who wraps it; or there is no shape yet
        return 0.0  # where weights are saved, the ledger says that it cannot be read
    return max((_of(part.tensor) for part in parts), default=0.0)


def _of_quantised(tensor: torch.Tensor) -> float:
    """Of a tensor that torch itself quantised: its steps are known."""
    if str(tensor.dtype) in _OF_FOUR_BITS:
        return _FOUR_BITS
    if tensor.dim() < 2 or not tensor.numel():
        return 0.0
    whole = tensor.int_repr()
    rows = torch.linspace(0, len(whole) - 1, min(len(whole), _ROWS)).long()
    scale, zero = _steps_of(tensor)
    if len(scale) == len(whole):  # else one for all, or one for each of other channels
        scale, zero = scale[rows], zero[rows]
    real = (whole[rows].double() - zero) * scale
    power = float(real.square().mean())
    return math.sqrt(float(scale.square().mean()) / 12 / power) if power > 0 else 0.0


def _steps_of(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points, of the dims of the tensor or 1."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        parts, axis = (torch.tensor(tensor.q_scale()), torch.tensor(tensor.q_zero_point())), 0
    else:
        parts = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        axis = tensor.q_per_channel_axis()
    dims = [1] * tensor.dim()
    dims[axis] = -1
    scale, zero = (part.double().reshape(dims) for part in parts)
    return scale, zero


def _of(tensor: torch.Tensor) -> float:
    """What rounding has cost what a dense tensor holds; 0 for one that is not of few bits.

    Of whole numbers in steps of one the error is uniform, of the variance 1/12.
    """
    if tensor.dim() < 2:
        return 0.0
    if tensor.dtype is not torch.int8:
        return _KNOWN.get(tensor.dtype, 0.0)
    power = float(_sample(tensor).to(torch.float32).square().mean())
    return 1 / math.sqrt(12 * power) if power > 0 else 0.0


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    as_stored = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    flat = tensor.detach().permute(as_stored).reshape(-1)
    apart = flat.numel() // (_SAMPLES // _STRETCH)
    return flat if apart < _STRETCH else flat.unfold(0, _STRETCH, apart)
