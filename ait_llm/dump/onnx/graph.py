"""An ONNX graph of which every value is an output."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ait_llm.dump.onnx.apart import taken_apart
from ait_llm.dump.onnx.few_bits import FewBits, weight_of, with_real_weight
from ait_llm.dump.onnx.node import Array, Node, Operator
from ait_llm.dump.onnx.operators import operator_of

if TYPE_CHECKING:
    import onnx

_MAX_CONSTANT = 1 << 16  # elements: larger ones are weights, of which only the shape is looked at
_SCOPES = "pkg.torch.onnx.name_scopes"
_WIDENED = ".ait_float32"
_FLOAT = 1  # ``TensorProto.DataType`` of float32
# Numbers of ``TensorProto.DataType``.
_NARROW = {16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2",
           20: "float8_e5m2fnuz"}  # fmt: skip
_UNFIT = re.compile(r"[^A-Za-z0-9_.]")  # for the name of a file


@dataclass(frozen=True, slots=True)
class Placed:
    """A node of the graph that runs.

    Attributes:
        name: how it is called in the dump; no other node is called so.
        operator: what it computes.
        outputs: names of its results; empty for those that nobody wants.
        module: path of the module that it was made of, as its exporter says; empty if unknown.
    """

    name: str
    operator: Operator
    outputs: tuple[str, ...]
    module: str

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        return f"{self.name}-{self.operator.target}"


@dataclass(frozen=True, slots=True)
class Laid:
    """A graph, ready to be captured.

    Attributes:
        nodes: in the order of the graph, which is one in which it can run.
        weights: initial values and constants by name; large ones may lie in files of their own.
        inputs: names of what the program gives.
        shown: outputs of the model by the value that they show: of types without a counterpart in
            NumPy a copy in float32, which holds each of their numbers.
        narrow: the type of such values, as torch calls it.
        hidden: nodes within the branches and bodies of others, whose values are not seen.
        results: names of what the model gives back.
        sums: what fused nodes add up and do not show, by the names of what they add.
        quantised: weights of a few bits, by the names of the real numbers that they stand for.
    """

    nodes: tuple[Placed, ...]
    weights: Mapping[str, onnx.TensorProto]
    inputs: tuple[str, ...]
    shown: Mapping[str, str]
    narrow: Mapping[str, str]
    hidden: int
    results: tuple[str, ...] = ()
    sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    quantised: Mapping[str, FewBits] = field(default_factory=dict)


def lay_out(model: onnx.ModelProto) -> Laid:
    """The nodes of a model, and make each of their results an output of it.

    Args:
        model: changed in place. Data of its weights in other files is not read.
    """
    import onnx

    graph = model.graph
    weights = {each.name: each for each in graph.initializer}
    constants = {name: _array(each) for name, each in weights.items() if _is_small(each)}
    for each in graph.node:
        if each.op_type == "Constant" and not each.domain:
            value = _constant(each)
            if value is not None:
                constants[each.output[0]] = value
    types = _types(model)
    results = tuple(each.name for each in graph.output)
    is_output = set(results)
    shown: dict[str, str] = {}
    narrow: dict[str, str] = {}
    narrow |= {
        name: _NARROW[each.data_type] for name, each in weights.items() if each.data_type in _NARROW
    }
    names: set[str] = set()
    placed, hidden = [], 0
    known = dict(constants)  # and numbers that are cast first, as the runtime does with float16
    told, sums = _told(graph, weights, types)
    quantised = _with_real_weights(told, weights)
    for each in told:
        hidden += sum(_hidden(attribute) for attribute in each.attribute)
        if each.op_type == "Constant" and each.output[0] in constants:
            continue
        node = _node(each, known, weights, types)
        if each.op_type == "Cast" and (number := _cast_number(node, known)) is not None:
            known[each.output[0]] = number
        outputs = tuple(name if _is_tensor(types.get(name)) else "" for name in each.output)
        placed.append(Placed(_name(each, names), operator_of(node), outputs, _module(each)))
        for name in filter(None, outputs):
            if name in sums:
                continue
            shown[name] = name
            if (type_name := _narrow(types.get(name))) is not None:
                shown[name], narrow[name] = f"{name}{_WIDENED}", type_name
                graph.node.append(
                    onnx.helper.make_node("Cast", [name], [shown[name]], to=onnx.TensorProto.FLOAT)
                )
            if shown[name] not in is_output:
                graph.output.append(onnx.ValueInfoProto(name=shown[name]))
    own = {each.name for each in graph.input} - set(weights)
    inputs = tuple(each.name for each in graph.input if each.name in own)
    arrays = {name: onnx.numpy_helper.from_array(value, name) for name, value in constants.items()}
    known_weights = {**arrays, **weights}
    return Laid(
        tuple(placed), known_weights, inputs, shown, narrow, hidden, results, sums, quantised
    )


def _told(
    graph: onnx.GraphProto,
    weights: Mapping[str, onnx.TensorProto],
    types: Mapping[str, onnx.TypeProto],
) -> tuple[list[onnx.NodeProto], dict[str, tuple[str, str]]]:
    """The nodes of a graph, fused ones one by one, and the sums that these do not show."""

    def is_float32(name: str) -> bool:
        if name in weights:
            return bool(weights[name].data_type == _FLOAT)
        return name in types and types[name].tensor_type.elem_type == _FLOAT

    told: list[onnx.NodeProto] = []
    sums: dict[str, tuple[str, str]] = {}
    for node in graph.node:
        for part in taken_apart(node, is_float32):
            told.append(part)
            if not set(part.output) <= set(node.output):
                sums[part.output[0]] = part.input[0], part.input[1]
    return told, sums


def _with_real_weights(
    told: list[onnx.NodeProto], weights: Mapping[str, onnx.TensorProto]
) -> dict[str, FewBits]:
    """Tell products of a few bits as products with real numbers, in place; their weights."""
    found = {}
    for place, node in enumerate(told):
        weight = weight_of(node, weights)
        if weight is not None:
            found[weight.name] = weight
            told[place] = with_real_weight(node, weight)
    return found


def _node(
    node: onnx.NodeProto,
    constants: Mapping[str, Array],
    weights: Mapping[str, onnx.TensorProto],
    types: Mapping[str, onnx.TypeProto],
) -> Node:
    import onnx

    ranks, floating, known = {}, set(), {}
    for name in node.input:
        if name in constants:
            known[name] = constants[name]
            ranks[name] = constants[name].ndim
            if constants[name].dtype.kind not in "iub":
                floating.add(name)
        elif name in weights:
            ranks[name] = len(weights[name].dims)
            # of what is too large to look at, the shape still says something
            known[name] = np.broadcast_to(np.float32(0), tuple(weights[name].dims))
        elif (found := types.get(name)) is not None and found.HasField("tensor_type"):
            if found.tensor_type.HasField("shape"):
                ranks[name] = len(found.tensor_type.shape.dim)
            if found.tensor_type.elem_type in (1, 10, 11, 16):
                floating.add(name)
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    for name, value in attributes.items():
        if isinstance(value, bytes):
            attributes[name] = value.decode("utf-8", "replace")
        elif isinstance(value, onnx.TensorProto):
            attributes[name] = _array(value)
    kind = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    told = {name: _sizes(types.get(name)) for name in (*node.input, *node.output)}
    sizes = {name: each for name, each in told.items() if each is not None}
    values = tuple(node.input), tuple(node.output)
    return Node(kind, *values, attributes, known, ranks, frozenset(floating), sizes)


def _sizes(kind: onnx.TypeProto | None) -> list[int] | None:
    """Sizes as far as the graph tells them; None if it leaves more than one open."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    sizes = [each.dim_value if each.HasField("dim_value") else -1 for each in dims]
    return sizes if sizes.count(-1) < 2 else None


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Types of values, as far as the specification tells them."""
    import onnx

    # It is known to fail; what the model says itself remains.
    with contextlib.suppress(Exception):
        model = onnx.shape_inference.infer_shapes(model)
    graph = model.graph
    return {each.name: each.type for each in (*graph.input, *graph.value_info, *graph.output)}


def _is_tensor(kind: onnx.TypeProto | None) -> bool:
    """False for sequences, maps and optional values; unknown ones mostly are tensors."""
    return kind is None or kind.WhichOneof("value") in (None, "tensor_type")


def _narrow(kind: onnx.TypeProto | None) -> str | None:
    """The type of a value that NumPy does not have."""
    return None if kind is None else _NARROW.get(kind.tensor_type.elem_type)


def _is_small(tensor: onnx.TensorProto) -> bool:
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    return bool(np.prod(tensor.dims, dtype=np.float64) <= _MAX_CONSTANT)


def _array(tensor: onnx.TensorProto) -> Array:
    import onnx

    return np.asarray(onnx.numpy_helper.to_array(tensor))


def _constant(node: onnx.NodeProto) -> Array | None:
    """The value of a ``Constant``; None where it is text or sparse."""
    import onnx

    for each in node.attribute:
        value = onnx.helper.get_attribute_value(each)
        if each.name == "value":
            return _array(value)
        if each.name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if each.name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    return None


def _cast_number(node: Node, known: Mapping[str, Array]) -> Array | None:
    """What a cast makes of a constant that is one number."""
    import onnx

    constant = known.get(node.inputs[0])
    if constant is None or constant.ndim:
        return None
    kind = onnx.helper.tensor_dtype_to_np_dtype(node.attributes["to"])
    return constant.astype(kind) if kind.kind in "fiub" else None


def _hidden(attribute: onnx.AttributeProto) -> int:
    """Nodes of the graphs in an attribute."""
    graphs = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return sum(
        1 + sum(_hidden(each) for each in node.attribute) for graph in graphs for node in graph.node
    )


def fit_for_file(name: str) -> str:
    """A name without what file names of nodes cannot hold."""
    return _UNFIT.sub("_", name)


def _name(node: onnx.NodeProto, taken: set[str]) -> str:
    """What file names can hold: the name of the node, else that of its result."""
    text = node.name or next(filter(None, node.output), node.op_type)
    name = base = fit_for_file(text.strip("/").replace("/", "."))[:150] or node.op_type
    number = 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def _module(node: onnx.NodeProto) -> str:
    """``model.layers.0.mlp`` as the exporters of torch say it: in a note, or in the name."""
    for each in node.metadata_props:
        if each.key == _SCOPES:
            try:
                scopes = ast.literal_eval(each.value)
            except (ValueError, SyntaxError):
                return ""
            return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) > 1 else ""
    return node.name.strip("/").rpartition("/")[0].replace("/", ".") if "/" in node.name else ""
