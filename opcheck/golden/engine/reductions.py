"""Operators of the graph engine that add up: products, means, norms, softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, engine_op, integers

_FIRST = frozenset({0})
_REDUCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "ReduceMax": torch.amax,
    "ReduceMean": torch.mean,
    "ReduceMin": torch.amin,
    "ReduceSum": torch.sum,
}


@engine_op("MatMul", "MatMulV2", "MatMulV3", attributes=True)
def _product(part: Part) -> Compute | None:
    return _products(part, "transpose_x1", "transpose_x2")


@engine_op("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", attributes=True)
def _batch_of_products(part: Part) -> Compute | None:
    return _products(part, "adj_x1", "adj_x2")


def _products(part: Part, first: str, second: str) -> Compute | None:
    flags = [part.attr(name, False) for name in (first, second)]
    if not all(type(one) is bool for one in flags):
        return None

    def compute(
        x: Tensor, y: Tensor, bias: Tensor | None = None, offset: Tensor | None = None
    ) -> Tensor:
        if offset is not None or x.dtype != y.dtype:
            raise UnverifiableError("it is a product of quantised numbers")
        x, y = (
            one.transpose(-2, -1) if turned else one
            for one, turned in zip((x, y), flags, strict=True)
        )
        if not x.is_floating_point():  # int8 is added up in int32
            found = x.int() @ y.int()
            return found if bias is None else found + bias
        if bias is None:
            return x @ y
        if x.dim() == y.dim() == 2 and bias.dtype == x.dtype:
            return torch.addmm(bias, x, y)
        return ((x @ y).to(bias.dtype) + bias).to(x.dtype)

    return compute


@engine_op(*_REDUCTIONS, attributes=True)
def _reduced(part: Part) -> Compute | None:
    function, keep = _REDUCTIONS[part.type], part.attr("keep_dims", False)
    whole = not part.attr("noop_with_empty_axes", False)

    def compute(x: Tensor, axes: Tensor) -> Tensor:
        dims = integers(axes)
        if not dims and not whole:
            return x
        return function(x, dims or list(range(x.dim())), keepdim=keep)

    return compute if type(keep) is bool else None


@engine_op(*(f"{name}D" for name in _REDUCTIONS), attributes=True)
def _reduced_along(part: Part) -> Compute | None:
    function, keep = _REDUCTIONS[part.type[:-1]], part.attr("keep_dims", False)
    axes = part.axes("axes")
    if not axes or type(keep) is not bool:
        return None
    return lambda x: function(x, axes, keepdim=keep)


@engine_op("SoftmaxV2", "Softmax", attributes=True)
def _softmax(part: Part) -> Compute | None:
    axes = part.axes("axes") or [-1]
    wide = part.attr("half_to_float", False)
    if len(axes) != 1 or type(wide) is not bool:
        return None
    return lambda x: functional.softmax(x, axes[0], dtype=torch.float32 if wide else None)


@engine_op("LogSoftmaxV2", attributes=True)
def _log_softmax(part: Part) -> Compute | None:
    axes = part.axes("axes") or [-1]
    return None if len(axes) != 1 else lambda x: functional.log_softmax(x, axes[0])


@engine_op("Cumsum", attributes=True)
def _running_sum(part: Part) -> Compute | None:
    if part.attr("exclusive", False) or part.attr("reverse", False):
        return None
    return lambda x, axis: torch.cumsum(x, integers(axis)[0], dtype=x.dtype)


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` in float32, over the dims of the weight."""
    wide = x.to(torch.float32)
    dims = list(range(-weight.dim(), 0))
    scaled = wide * torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + eps)
    return (scaled * weight.to(torch.float32)).to(x.dtype)


@engine_op("RmsNorm", attributes=True, checked=_FIRST)
def _rms_norm(part: Part) -> Compute | None:
    eps = part.number("epsilon", 1e-6)
    return None if eps is None else lambda x, weight: _rms(x, weight, eps)


@engine_op("AddRmsNorm", attributes=True, checked=frozenset({0, 2}))
def _add_rms_norm(part: Part) -> Compute | None:
    """Normed sum, what is kept for a backward pass, and the sum."""
    eps = part.number("epsilon", 1e-6)
    if eps is None:
        return None

    def compute(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = x + y
        return _rms(total, weight, eps), total, total

    return compute


@engine_op("LayerNormV4", attributes=True, checked=_FIRST)
def _layer_norm(part: Part) -> Compute | None:
    eps = part.number("epsilon", 1e-5)
    if eps is None:
        return None

    def compute(
        x: Tensor, shape: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        return _layer(x, integers(shape), weight, bias, eps)

    return compute


@engine_op("LayerNorm", "LayerNormV3", attributes=True, checked=_FIRST)
def _layer_norm_from(part: Part) -> Compute | None:
    eps, axis = part.number("epsilon"), part.axis("begin_norm_axis", 0)
    if eps is None or axis is None or part.attr("begin_params_axis", axis) not in (axis, -1):
        return None

    def compute(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        shape = list(x.shape[axis:])
        return _layer(x, shape, weight.reshape(shape), bias.reshape(shape), eps)

    return compute


def _layer(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    weight, bias = (None if one is None else one.to(x.dtype) for one in (weight, bias))
    return functional.layer_norm(x, shape, weight, bias, eps)
