"""Operators of ONNX as the operators of PyTorch that compute the same.

A node that one operator of ``aten`` computes is written under that name and with its arguments, so
that whatever knows nodes of FX graphs knows it too: pairing, recomputation, definitions. All others
keep their name, ``onnx.ScatterND``, and are compared by their values alone.

The meaning of the operators is that of the ONNX specification (``onnx/docs/Operators.md``) and, for
those of the domain ``com.microsoft``, of ONNX Runtime's ``docs/ContribOperators.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ait_llm.dump.onnx.attention import attention, grouped_attention, rotary
from ait_llm.dump.onnx.few_bits import KIND, product
from ait_llm.dump.onnx.node import Named, Node, Operator

_TO_THE_END = 1 << 62  # ends of slices from here on mean the end of the axis


def operator_of(node: Node) -> Operator:
    """The operator of PyTorch that computes a node; itself where there is none."""
    make = _OPERATORS.get(node.kind)
    found = make(node) if make is not None else None
    if found is None:
        args = tuple(Named(name) if name else None for name in node.inputs)
        kind = node.kind.replace("com.microsoft.", "ms_").replace(".", "_")
        if kind not in _OWN or not node.options.keys() <= _OWN[kind]:
            return Operator(f"onnx.{kind}.default", args, node.options)
        return Operator(f"ait_onnx.{kind}.default", args, node.options)
    target, *given = found
    options = given.pop() if isinstance(given[-1], dict) else {}
    return Operator(target, tuple(given), options)


Found = tuple[Any, ...] | None
"""Target and arguments, and those that have names in a dictionary."""
_Make = Callable[[Node], Found]


def _plain(target: str, count: int) -> _Make:
    """An operator with so many inputs and nothing else."""
    return lambda node: (target, *(node.argument(place) for place in range(count)))


def _of_floats(target: str, count: int) -> _Make:
    """One that does something else with integers than its counterpart."""
    return lambda node: (
        _plain(target, count)(node) if any(name in node.floating for name in node.inputs) else None
    )


def _axis(target: str, default: int, *more: Any) -> _Make:
    return lambda node: (target, node.argument(0), node.attributes.get("axis", default), *more)


def _reduced(target: str) -> _Make:
    def make(node: Node) -> Found:
        axes = node.numbers(1, "axes")
        if not axes:
            return None
        return target, node.argument(0), axes, bool(node.attributes.get("keepdims", 1))

    return make


def _gathered(node: Node) -> Found:
    """Rows of a table, or one of an axis."""
    axis = int(node.attributes.get("axis", 0))
    index = node.constants.get(node.inputs[1])
    if index is not None and index.ndim == 0:
        return "aten.select.int", node.argument(0), axis, int(index)
    if axis == 0 and node.ranks.get(node.inputs[0]) == 2:
        return "aten.embedding.default", node.argument(0), node.argument(1)
    if node.ranks.get(node.inputs[1]) == 1:
        return "aten.index_select.default", node.argument(0), axis, node.argument(1)
    return None


def _sliced(node: Node) -> Found:
    starts, ends = node.numbers(1, "starts"), node.numbers(2, "ends")
    axes = node.numbers(3, "axes") or [0]
    steps = node.numbers(4) or [1]
    if starts is None or ends is None or not len(starts) == len(ends) == len(axes) == 1:
        return None
    if steps[0] < 1:
        return None
    end = min(ends[0], (1 << 63) - 1) if ends[0] < _TO_THE_END else (1 << 63) - 1
    return "aten.slice.Tensor", node.argument(0), axes[0], starts[0], end, steps[0]


def _split(node: Node) -> Found:
    axis = node.attributes.get("axis", 0)
    sizes = node.numbers(1, "split")
    if sizes is None and not node.has(1):  # so many equal parts
        parts = [node.sizes.get(name) for name in node.outputs]
        told = [each[axis] for each in parts if each is not None]
        sizes = told if len(told) == len(parts) and min(told) >= 0 else None
    return None if not sizes else ("aten.split_with_sizes.default", node.argument(0), sizes, axis)


def _viewed(node: Node) -> Found:
    sizes = node.numbers(1)
    if sizes is None or 0 in sizes:
        return None  # zero copies a size from the input
    return "aten.view.default", node.argument(0), sizes


def _expanded(node: Node) -> Found:
    """Where ONNX wants a size of 1, what is larger stays."""
    sizes, rank = node.numbers(1), node.ranks.get(node.inputs[0])
    if sizes is None or rank is None or rank > len(sizes):
        return None
    new = len(sizes) - rank
    kept = [-1 if size == 1 and place >= new else size for place, size in enumerate(sizes)]
    return "aten.expand.default", node.argument(0), kept


def _unsqueezed(node: Node) -> Found:
    """New axes; several are told by the sizes of all, as far as one at most is not known."""
    axes, sizes = node.numbers(1, "axes"), node.sizes.get(node.outputs[0])
    if axes and len(axes) == 1:
        return "aten.unsqueeze.default", node.argument(0), axes[0]
    return None if sizes is None else ("aten.view.default", node.argument(0), sizes)


def _squeezed(node: Node) -> Found:
    axes = node.numbers(1, "axes")
    if axes:
        return "aten.squeeze.dims", node.argument(0), axes
    return None if node.has(1) else ("aten.squeeze.default", node.argument(0))


def _shape(node: Node) -> Found:
    is_whole = node.attributes.get("start", 0) == 0 and "end" not in node.attributes
    return ("aten._shape_as_tensor.default", node.argument(0)) if is_whole else None


def _of_two(target: str) -> _Make:
    return lambda node: (
        (target, Named(node.inputs[0]), Named(node.inputs[1])) if len(node.inputs) == 2 else None
    )


def _cumulative(node: Node) -> Found:
    axis = node.numbers(1)
    if axis is None or node.attributes.get("exclusive") or node.attributes.get("reverse"):
        return None
    return "aten.cumsum.default", node.argument(0), axis[0]


def _joined(node: Node) -> Found:
    parts = [Named(name) for name in node.inputs]
    return "aten.cat.default", parts, node.attributes.get("axis", 0)


def _product(node: Node) -> Found:
    """``Gemm`` without factors."""
    read = node.attributes.get
    if (read("alpha", 1.0), read("beta", 1.0), read("transA", 0)) != (1.0, 1.0, 0):
        return None
    a, b = node.argument(0), node.argument(1)
    if read("transB", 0):
        return ("aten.linear.default", a, b, *([node.argument(2)] if node.has(2) else []))
    if node.has(2):
        return "aten.addmm.default", node.argument(2), a, b
    return "aten.mm.default", a, b


def _layer_norm(node: Node) -> Found:
    weight = node.ranks.get(node.inputs[1])
    if weight != 1 or node.attributes.get("axis", -1) != -1 or any(node.outputs[1:]):
        return None
    bias = node.argument(2) if node.has(2) else None
    eps = node.attributes.get("epsilon", 1e-5)
    return "aten.layer_norm.default", node.argument(0), _sizes(node), node.argument(1), bias, eps


def _rms_norm(node: Node) -> Found:
    if node.ranks.get(node.inputs[1]) != 1 or any(node.outputs[1:]):
        return None
    if node.attributes.get("axis", -1) != -1:
        return None
    eps = node.attributes.get("epsilon", 1e-5)
    return "aten.rms_norm.default", node.argument(0), _sizes(node), node.argument(1), eps


def _sizes(node: Node) -> list[int]:
    """What is normalised: as many as the weight has."""
    known = node.constants.get(node.inputs[1])
    return node.sizes[node.inputs[1]] if known is None else [int(size) for size in known.shape]


def _gelu(node: Node) -> Found:
    way = node.attributes.get("approximate", "none")
    return "aten.gelu.default", node.argument(0), {"approximate": way}


def _cast(node: Node) -> Found:
    dtype = _TYPES.get(node.attributes["to"])
    if dtype is None:
        return None
    return "aten._to_copy.default", node.argument(0), {"dtype": f"torch.{dtype}"}


def _clamped(node: Node) -> Found:
    low, high = ((node.argument(at) if node.has(at) else None) for at in (1, 2))
    if isinstance(low, Named) or isinstance(high, Named):
        return None
    return "aten.clamp.default", node.argument(0), low, high


def _triangle(node: Node) -> Found:
    name = "triu" if node.attributes.get("upper", 1) else "tril"
    diagonal = node.numbers(1) or [0]
    return f"aten.{name}.default", node.argument(0), diagonal[0]


def _filled(node: Node) -> Found:
    """The same number everywhere, in sizes that a graph may compute."""
    value = node.attributes.get("value")
    if value is None:
        return "ait_onnx.ConstantOfShape.default", Named(node.inputs[0]), {"value": 0.0}
    if value.dtype.name not in _TYPES.values():
        return None
    about = {"value": float(value.reshape(-1)[0]), "dtype": f"torch.{value.dtype.name}"}
    return "ait_onnx.ConstantOfShape.default", Named(node.inputs[0]), about


def _with_weights(make: _Make) -> _Make:
    """Normalisations: the sizes of their weight must be known: they say what is normalised."""

    def made(node: Node) -> Found:
        if not node.has(1):
            return None
        sizes = node.sizes.get(node.inputs[1]) or []
        return (
            make(node) if node.inputs[1] in node.constants or min(sizes, default=-1) > 0 else None
        )

    return made


# Those that ``opcheck/golden/onnx_operators.py`` defines, with their attributes.
_OWN = {
    "Div": frozenset[str](),
    "Expand": frozenset[str](),
    "Gather": {"axis"},
    "GatherND": {"batch_dims"},
    "Range": frozenset[str](),
    "Reshape": {"allowzero"},
    "Shape": {"start", "end"},
    "Slice": frozenset[str](),
    "ms_FusedMatMul": {"alpha", "transA", "transB", "transBatchA", "transBatchB"},
    "ms_QuickGelu": {"alpha"},
}
# Numbers of ``TensorProto.DataType``.
_TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
          11: "float64", 16: "bfloat16"}  # fmt: skip
_ELEMENTWISE = {
    **{name: ("aten." + name.lower() + ".default", 1) for name in (
        "Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Round",
        "Sigmoid", "Sin", "Sqrt", "Tanh",
    )},
    **{name: (target, 2) for name, target in (
        ("Add", "aten.add.Tensor"), ("Sub", "aten.sub.Tensor"), ("Mul", "aten.mul.Tensor"),
        ("Equal", "aten.eq.Tensor"), ("Less", "aten.lt.Tensor"), ("Greater", "aten.gt.Tensor"),
        ("LessOrEqual", "aten.le.Tensor"), ("GreaterOrEqual", "aten.ge.Tensor"),
        ("And", "aten.logical_and.default"), ("Or", "aten.logical_or.default"),
        ("MatMul", "aten.matmul.default"),
    )},
    "IsNaN": ("aten.isnan.default", 1),
    "Not": ("aten.logical_not.default", 1),
    "Identity": ("aten.alias.default", 1),
}  # fmt: skip
_OPERATORS: Mapping[str, _Make] = {
    **{name: _plain(*about) for name, about in _ELEMENTWISE.items()},
    "Div": _of_floats("aten.div.Tensor", 2),
    "Pow": _of_floats("aten.pow.Tensor_Tensor", 2),
    "Cast": _cast,
    "Clip": _clamped,
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "Gather": _gathered,
    "Gelu": _gelu,
    "Gemm": _product,
    "LayerNormalization": _with_weights(_layer_norm),
    "LogSoftmax": _axis("aten._log_softmax.default", -1, False),
    "RMSNormalization": _with_weights(_rms_norm),
    "ReduceMax": _reduced("aten.amax.default"),
    "ReduceMean": _reduced("aten.mean.dim"),
    "ReduceSum": _reduced("aten.sum.dim_IntList"),
    "Reshape": _viewed,
    "SimplifiedLayerNormalization": _with_weights(_rms_norm),
    "Slice": _sliced,
    "Softmax": _axis("aten._softmax.default", -1, False),
    "Split": _split,
    "Squeeze": _squeezed,
    "Shape": _shape,
    "Max": _of_two("aten.maximum.default"),
    "Min": _of_two("aten.minimum.default"),
    "CumSum": _cumulative,
    "Transpose": lambda node: (
        ("aten.permute.default", node.argument(0), list(node.attributes["perm"]))
        if "perm" in node.attributes
        else None
    ),
    "Trilu": _triangle,
    "Where": lambda node: ("aten.where.self", *map(Named, node.inputs)),
    "Unsqueeze": _unsqueezed,
    f"ait.{KIND}": product,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.GroupQueryAttention": grouped_attention,
    "com.microsoft.MultiHeadAttention": attention,
    "com.microsoft.RotaryEmbedding": rotary,
    "com.microsoft.FastGelu": lambda node: (
        None if node.has(1) else ("aten.gelu.default", node.argument(0), {"approximate": "tanh"})
    ),
}
