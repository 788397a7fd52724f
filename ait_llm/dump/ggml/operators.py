"""Operators of ggml as the operators of PyTorch that compute the same.

What one operator of ``aten`` computes is written under that name and with its arguments, so that
whatever knows nodes of FX graphs knows it too. What none computes but is defined here exactly
(``opcheck/golden/ggml_operators.py``) is ``ait_ggml.rope`` and its kin; all others keep their name,
``ggml.CONV_2D``, and are compared by their values alone.

The meaning of the operators is that of ``ggml/include/ggml.h`` and ``ggml/src/ggml-cpu/ops.cpp``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.dump.onnx.node import Named, Operator


@dataclass(frozen=True, slots=True)
class Value:
    """A value as an operator reads it.

    Attributes:
        name: in the dump.
        shape: the slowest axis first.
        is_weight: it is a weight of the model.
        dtype: as ggml calls it: ``f16``.
    """

    name: str
    shape: tuple[int, ...]
    is_weight: bool = False
    dtype: str = "f32"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Call:
    """An evaluated tensor, and what it was made of.

    Attributes:
        op: ``MUL_MAT``, ``SILU``.
        inputs: what it read; None where nothing is.
        shape: of the result.
        params: numbers of the operator, as 32-bit integers.
        is_packed: the result has its elements one behind the other, from the start of its source.
        steps: of a view of packed elements, how many of them lie between two along each axis, the
            slowest first, and in front of the first; empty where this is not known.
        rows: those that it selects, where it is a selection of rows.
        kept_all: the same tensor of an earlier evaluation selected all rows.
    """

    op: str
    inputs: Sequence[Value | None]
    shape: tuple[int, ...]
    params: Sequence[int] = ()
    is_packed: bool = True
    steps: Sequence[int] = ()
    rows: Sequence[int] = ()
    kept_all: bool = False

    def number(self, place: int) -> float:
        """A parameter that is a number with a point."""
        return float(struct.unpack("<f", struct.pack("<i", self.params[place]))[0])

    def value(self, place: int) -> Value:
        """An input that is there."""
        found = self.inputs[place]
        assert found is not None
        return found

    def named(self, place: int) -> Named | None:
        """An input as an argument."""
        found = self.inputs[place] if place < len(self.inputs) else None
        return None if found is None else Named(found.name)


def operator_of(call: Call) -> Operator:
    """The operator of PyTorch that computes a call; itself where there is none."""
    make = _OPERATORS.get(call.op)
    found = None if make is None else make(call)
    if found is not None:
        return found
    args = tuple(call.named(place) for place in range(len(call.inputs)))
    while args and args[-1] is None:
        args = args[:-1]
    options = {f"param_{at}": number for at, number in enumerate(call.params) if number}
    return Operator(f"ggml.{call.op}.default", args, options)


_HALVES = ("f16", "bf16")
_Make = Callable[[Call], Operator | None]


def _own(name: str, *args: Any, **options: Any) -> Operator:
    return Operator(f"ait_ggml.{name}.default", args, options)


def _first(target: str, *more: Any, **options: Any) -> _Make:
    return lambda call: Operator(target, (call.named(0), *more), options)


def _of_two(target: str) -> _Make:
    """An operator that repeats its second input as PyTorch does, where axes are 1."""

    def make(call: Call) -> Operator | None:
        wide, narrow = call.value(0).shape, call.value(1).shape
        pairs = zip(wide[::-1], narrow[::-1], strict=False)
        if len(narrow) > len(wide) or any(b not in (1, a) for a, b in pairs):
            return None
        return Operator(target, (call.named(0), call.named(1)))

    return make


def _viewed(call: Call) -> Operator | None:
    source = call.value(0).shape
    if not call.is_packed or math.prod(source) != math.prod(call.shape):
        if not call.steps:
            return None
        *steps, start = call.steps
        return _own("strided", call.named(0), list(call.shape), list(steps), start)
    return Operator("aten.view.default", (call.named(0), _sizes(call)))


def _sizes(call: Call) -> list[int]:
    """The sizes of the result; the first, which often counts tokens, is left open."""
    return [-1, *call.shape[1:]]


def _copied(call: Call) -> Operator:
    if call.shape == call.value(0).shape:
        return Operator("aten.clone.default", (call.named(0),))
    return Operator("aten.reshape.default", (call.named(0), _sizes(call)))


def _permuted(call: Call) -> Operator | None:
    rank = call.value(0).rank
    to = list(call.params[:4])
    if len(call.shape) != rank or to[rank:] != list(range(rank, 4)):
        return None
    order = [rank - 1 - to.index(rank - 1 - place) for place in range(rank)]
    return Operator("aten.permute.default", (call.named(0), order))


def _product(call: Call) -> Operator:
    weight, x = call.value(0), call.value(1)
    # What is multiplied with numbers of 16 bits is rounded to them first.
    inner = {"inner": weight.dtype} if weight.dtype in _HALVES else {}
    if not weight.is_weight or weight.rank != 2:
        return _own("mul_mat", Named(weight.name), Named(x.name), **inner)
    if inner:
        return _own("linear", Named(x.name), Named(weight.name), **inner)
    # With quantised weights x is quantised, too, in a form of the processor's choice.
    target = "aten.linear.default" if weight.dtype == "f32" else "ggml.linear.default"
    return Operator(target, (Named(x.name), Named(weight.name)))


def _rows(call: Call) -> Operator:
    """Rows of a table; of activations those that are wanted, mostly the last ones."""
    table, indices = call.value(0), call.value(1)
    if table.is_weight and table.rank == 2 and indices.rank == 1:
        args = Named(table.name), Named(indices.name)
        # Results are float32 always.
        own = table.dtype in _HALVES
        return _own("embedding", *args) if own else Operator("aten.embedding.default", args)
    size, chosen = table.shape[0], list(call.rows)
    if indices.rank == 1 and chosen and chosen == list(range(size - len(chosen), size)):
        if len(chosen) == size and (size > 1 or call.kept_all):
            return Operator("aten.clone.default", (Named(table.name),))
        last = 0, -len(chosen), (1 << 63) - 1
        return Operator("aten.slice.Tensor", (Named(table.name), *last))
    return _own("get_rows", Named(table.name), Named(indices.name))


def _scaled(call: Call) -> Operator | None:
    if call.number(1):
        return None
    return Operator("aten.mul.Scalar", (call.named(0), call.number(0)))


def _softmax(call: Call) -> Operator | None:
    scale, bias = call.number(0), call.number(1)
    if bias or call.named(2) is not None:
        return None
    if call.named(1) is None and scale == 1:
        return Operator("aten._softmax.default", (call.named(0), -1, False))
    return _own("soft_max", call.named(0), call.named(1), scale=scale)


def _turned(call: Call) -> Operator | None:
    """Rotary positions without the scaling of YaRN."""
    dims, mode = call.params[1], call.params[2]
    extension, attention = call.number(7), call.number(8)
    if mode not in (0, 2) or extension:
        return None
    return _own(
        "rope",
        call.named(0),
        call.named(1),
        call.named(2),
        dims=dims,
        neox=bool(mode),
        base=call.number(5),
        scale=call.number(6),
        factor=attention,
    )


def _gated(name: str) -> _Make:
    def make(call: Call) -> Operator | None:
        if call.named(1) is None or call.params[1]:
            return None
        return _own(name, call.named(0), call.named(1))

    return make


def _attention(call: Call) -> Operator | None:
    if call.number(1) or call.number(2) or call.named(4) is not None:
        return None  # ALiBi, a cap, sinks
    args = (call.named(place) for place in range(4))
    return _own("flash_attention", *args, scale=call.number(0))


def _written(call: Call) -> Operator:
    return _own("set_rows", call.named(2), call.named(1), call.named(0))


def norm_operator(
    call: Call, weight: Value | None = None, bias: Value | None = None
) -> Operator | None:
    """``RMS_NORM`` or ``NORM``, with the weight and bias that follow it.

    Args:
        call: of the norm.
        weight: multiplied with its result.
        bias: added to that.
    """
    sizes, eps = [call.shape[-1]], call.number(0)
    x, scale = call.named(0), None if weight is None else Named(weight.name)
    if call.op == "RMS_NORM":
        return None if bias else Operator("aten.rms_norm.default", (x, sizes, scale, eps))
    offset = None if bias is None else Named(bias.name)
    return Operator("aten.layer_norm.default", (x, sizes, scale, offset, eps))


def _of_experts(call: Call) -> Operator | None:
    """Products with the weights of the experts of each token, which are not quantised."""
    weights, x, experts = (call.value(place) for place in range(3))
    if weights.dtype not in ("f32", *_HALVES) or weights.rank != 3 or experts.rank != 2:
        return None
    if x.rank not in (2, 3) or x.shape[0] != experts.shape[0]:
        return None
    inner = {"inner": weights.dtype} if weights.dtype in _HALVES else {}
    return _own("mul_mat_id", Named(weights.name), Named(x.name), Named(experts.name), **inner)


def _sorted(call: Call) -> Operator | None:
    if call.params[0] not in (0, 1):
        return None
    return _own("argsort", call.named(0), descending=bool(call.params[0]))


def _clamped(call: Call) -> Operator:
    edges = (call.number(0), call.number(1))
    least, most = (None if math.isinf(edge) else edge for edge in edges)
    return Operator("aten.clamp.default", (call.named(0), least, most))


_OPERATORS: Mapping[str, _Make] = {
    "ADD": _of_two("aten.add.Tensor"),
    "ARGSORT": _sorted,
    "CLAMP": _clamped,
    "CONT": _copied,
    "COS": _first("aten.cos.default"),
    "DIV": _of_two("aten.div.Tensor"),
    "DUP": _copied,
    "FLASH_ATTN_EXT": _attention,
    "GEGLU": _gated("geglu"),
    "GELU": _first("ait_ggml.gelu.default", approximate="tanh"),
    "GELU_ERF": _first("aten.gelu.default", approximate="none"),
    "GET_ROWS": _rows,
    "MUL": _of_two("aten.mul.Tensor"),
    "MUL_MAT": _product,
    "MUL_MAT_ID": _of_experts,
    "NORM": norm_operator,
    "PERMUTE": _permuted,
    "RELU": _first("aten.relu.default"),
    "RESHAPE": _viewed,
    "RMS_NORM": norm_operator,
    "ROPE": _turned,
    "SCALE": _scaled,
    "SET_ROWS": _written,
    "SIGMOID": _first("aten.sigmoid.default"),
    "SILU": _first("aten.silu.default"),
    "SIN": _first("aten.sin.default"),
    "SOFT_MAX": _softmax,
    "SQR": _first("aten.square.default"),
    "SQRT": _first("aten.sqrt.default"),
    "SUB": _of_two("aten.sub.Tensor"),
    "SUM_ROWS": _first("aten.sum.dim_IntList", [-1], True),
    "SWIGLU": _gated("swiglu"),
    "TANH": _first("aten.tanh.default"),
    "TRANSPOSE": _first("aten.transpose.int", -2, -1),
    "VIEW": _viewed,
}
