"""Products of the graph engine whose factors were quantised.

Sources: the prototypes of CANN (``REG_OP``) and its pages on ``QuantMatmul`` and
``WeightQuantBatchMatmul``. Products of 4 bits, of floats of 8 bits and those that quantise their
result are not judged.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, engine_op, named
from ait_llm.opcheck.golden.support import INTEGERS_OF_64_BITS

_WHOLE = frozenset({"x1", "x2", "scale", "bias", "pertoken_scale"})
_WEIGHT = frozenset({"x", "weight", "antiquant_scale", "antiquant_offset", "bias"})
_KEPT = 0xFFFFE000  # the unit that rescales leaves out the last 13 bits of packed scales


@engine_op("QuantBatchMatmulV3", attributes=True)
def _whole_numbers(part: Part) -> Compute | None:
    """``(x1 x2 + bias) scale pertoken_scale`` of int8, or the bias added last if it is real."""
    flags = _flags(part, "transpose_x1", "transpose_x2")
    if flags is None or part.attr("group_size", 0) or not _is_real(part):
        return None
    made = part.made

    def compute(*given: Tensor | None) -> Tensor:
        fed = named(part.ports, given, _WHOLE)
        x, y = (
            one.transpose(-2, -1) if turned else one
            for one, turned in zip((fed["x1"], fed["x2"]), flags, strict=True)
        )
        if x.dtype != torch.int8 or y.dtype != torch.int8 or made is None:
            raise UnverifiableError("only products of int8 are defined here")
        bias = fed.get("bias")
        total = x.to(torch.int32) @ y.to(torch.int32)
        if bias is not None and not bias.is_floating_point():
            total, bias = total + bias, None
        found = total.to(torch.float32) * _scale(fed["scale"])
        if "pertoken_scale" in fed:
            found = found * fed["pertoken_scale"].reshape(-1, 1)
        return (found if bias is None else found + bias).to(made)

    return compute


@engine_op("WeightQuantBatchMatmulV2", attributes=True)
def _weight(part: Part) -> Compute | None:
    """``x ((weight + antiquant_offset) antiquant_scale) + bias``, the weight of int8."""
    flags = _flags(part, "transpose_x", "transpose_weight")
    group = part.axis("antiquant_group_size", 0)
    if flags is None or group is None or not _is_real(part):
        return None

    def compute(*given: Tensor | None) -> Tensor:
        fed = named(part.ports, given, _WEIGHT)
        weight, scale = fed["weight"], fed["antiquant_scale"]
        if weight.dtype != torch.int8 or not scale.is_floating_point():
            raise UnverifiableError("only weights of int8 are defined here")
        axis = -1 if flags[1] else -2
        offset = fed.get("antiquant_offset")
        real = weight.to(scale.dtype)
        if offset is not None:
            real = real + _spread(offset, weight, group, axis)
        real = real * _spread(scale, weight, group, axis)
        x = fed["x"].transpose(-2, -1) if flags[0] else fed["x"]
        found = x @ (real.transpose(-2, -1) if flags[1] else real)
        return found if "bias" not in fed else (found + fed["bias"]).to(found.dtype)

    return compute


def _flags(part: Part, *names: str) -> tuple[bool, ...] | None:
    found = tuple(part.attr(name, False) for name in names)
    return found if all(type(one) is bool for one in found) and part.ports else None


def _is_real(part: Part) -> bool:
    return part.made is not None and part.made.is_floating_point


def _scale(scale: Tensor) -> Tensor:
    """A scale as it multiplies; packed ones have the bits of a float32 of 19 bits."""
    if scale.dtype not in INTEGERS_OF_64_BITS:
        return scale
    bits = scale.numpy().astype(np.uint32) & np.uint32(_KEPT)
    return torch.from_numpy(bits.view(np.float32))


def _spread(values: Tensor, weight: Tensor, group: int, axis: int) -> Tensor:
    """Scales or offsets beside the weight: one, one for each output, or for each group of it.

    Raises:
        UnverifiableError: their dims are none of these.
    """
    if values.numel() == 1:
        return values.reshape(1, 1)
    outputs, inputs = weight.shape[-3 - axis], weight.shape[axis]
    if values.numel() == outputs and not group:
        return values.reshape((-1, 1) if axis == -1 else (1, -1))
    if group and values.dim() == 2 and values.shape[axis] == -(-inputs // group):
        wide = values.repeat_interleave(group, axis)
        return wide.narrow(axis, 0, inputs)
    raise UnverifiableError("the scales of its weight have dims that are not defined here")
