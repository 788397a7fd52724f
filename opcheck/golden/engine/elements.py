"""Operators of the graph engine that compute element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, engine_op, plain


def _divided(first: Tensor, second: Tensor) -> Tensor:
    if not first.is_floating_point():
        raise UnverifiableError("how the engine rounds quotients of whole numbers is not known")
    return first / second


_ELEMENTS: Mapping[str, Compute] = {
    "Abs": torch.abs,
    "Add": torch.add,
    "AddV2": torch.add,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseNot": torch.bitwise_not,
    "BitwiseOr": torch.bitwise_or,
    "Ceil": torch.ceil,
    "ClipByValueV2": torch.clamp,
    "Cos": torch.cos,
    "Div": _divided,
    "Equal": torch.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Greater": torch.gt,
    "GreaterEqual": torch.ge,
    "Less": torch.lt,
    "LessEqual": torch.le,
    "LogicalAnd": torch.logical_and,
    "LogicalNot": torch.logical_not,
    "LogicalOr": torch.logical_or,
    "Maximum": torch.maximum,
    "Minimum": torch.minimum,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "NotEqual": torch.ne,
    "Pow": torch.pow,
    "RealDiv": _divided,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Rsqrt": torch.rsqrt,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Softplus": functional.softplus,
    "Sqrt": torch.sqrt,
    "Square": torch.square,
    "Sub": torch.sub,
    "Tanh": torch.tanh,
}
for _name, _function in _ELEMENTS.items():
    engine_op(_name)(plain(_function))


@engine_op("Adds", attributes=True)
def _adds(part: Part) -> Compute | None:
    value = part.number("value")
    return None if value is None else lambda x: x + _like(value, x)


@engine_op("Muls", attributes=True)
def _muls(part: Part) -> Compute | None:
    value = part.number("value")
    return None if value is None else lambda x: x * _like(value, x)


@engine_op("Axpy", attributes=True)
def _axpy(part: Part) -> Compute | None:
    alpha = part.number("alpha")
    return None if alpha is None else lambda x, y: torch.add(x, y, alpha=alpha)


def _like(value: float, x: Tensor) -> float | int:
    """A number as an operator on whole numbers takes it."""
    return value if x.is_floating_point() or not value.is_integer() else int(value)


@engine_op("Swish", attributes=True)
def _swish(part: Part) -> Compute | None:
    scale = part.number("scale", 1.0)
    if scale is None:
        return None
    return functional.silu if scale == 1 else lambda x: x * torch.sigmoid(scale * x)


@engine_op("GeluV2", attributes=True)
def _gelu(part: Part) -> Compute | None:
    how = part.attr("approximate", "none")
    if how not in ("none", "tanh"):
        return None
    return lambda x: functional.gelu(x, approximate=how)


@engine_op("LeakyRelu", attributes=True)
def _leaky(part: Part) -> Compute | None:
    slope = part.number("negative_slope", 0.0)
    return None if slope is None else lambda x: functional.leaky_relu(x, slope)


@engine_op("SwiGlu", attributes=True)
def _swiglu(part: Part) -> Compute | None:
    dim = part.axis("dim", -1)
    if dim is None:
        return None

    def compute(x: Tensor) -> Tensor:
        gate, passed = x.chunk(2, dim)
        return functional.silu(gate) * passed

    return compute


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _turned_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., ::2], x[..., 1::2]
    return x * cos + torch.stack((-second, first), -1).flatten(-2) * sin


engine_op("RotaryMul")(plain(_turned))


@engine_op("RotaryPositionEmbedding", attributes=True)
def _rotary(part: Part) -> Compute | None:
    """Mode 0 has the halves of a head as pairs, mode 1 its neighbours."""
    function = {0: _turned, 1: _turned_pairs}.get(part.attr("mode", 0))
    if function is None:
        return None

    def compute(x: Tensor, cos: Tensor, sin: Tensor, rotate: Tensor | None = None) -> Tensor:
        if rotate is not None:
            raise UnverifiableError("it turns by a matrix of its own")
        return function(x, cos, sin)

    return compute


@engine_op("Cast")
def _cast(part: Part) -> Compute | None:
    """To the type of its attribute, or of what was dumped where nothing has it."""
    dtype = part.dtype("dst_type") if part.attr("dst_type") is not None else part.made
    return None if dtype is None else lambda x: _converted(x, dtype)


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.is_floating_point() and not dtype.is_floating_point and dtype is not torch.bool:
        largest = float(torch.iinfo(dtype).max)
        if x.numel() and not bool((x.abs() < largest).all()):
            raise UnverifiableError("what becomes of numbers that a type cannot hold is not known")
    return x.to(dtype)


@engine_op("Range")
def _range(part: Part) -> Compute | None:
    def compute(start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
        numbers = [one.item() for one in (start, limit, step)]
        if not all(math.isfinite(one) for one in numbers):
            raise UnverifiableError("its limits are not finite")
        return torch.arange(*numbers, dtype=part.made or start.dtype)

    return compute
