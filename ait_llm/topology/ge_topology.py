"""GE graphs as topologies: data flow between operators, with what is recorded of the tensors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ait_llm.core import DType, whole_number
from ait_llm.topology.ge_files import GeGraphFile
from ait_llm.topology.ge_graph import AttrValue, GeGraph, GeOp, GeTensor
from ait_llm.topology.graph import Graph, Node
from ait_llm.topology.shapes import Dim, OperationRow, OperationTable, TensorInfo

INPUT_TYPES = frozenset({"Data", "RefData", "AippData"})
CONSTANT_TYPES = frozenset({"Const", "Constant", "ConstPlaceHolder", "FileConstant", "Variable"})
OUTPUT_TYPES = frozenset({"NetOutput"})
META_KEY = "_meta"

_META = re.compile(r"Tensor\(dtype=torch\.(\w+), shape=torch\.Size\(\[([^\[\]]*)\]\)\)?")
_TORCH_DTYPES = {dtype.torch_name: dtype for dtype in DType if dtype.torch_name}
_UNKNOWN = TensorInfo(None, "", None)
# What the lists of names and numbers of an optimized graph tell is in its edges and descriptions.
_REPEATED = re.compile(r"_(?:in|out)put_name_(?:key|value)")


def graph_from_ge(ge: GeGraph) -> tuple[Graph, OperationTable]:
    """The topology of a graph, and what it says of the tensors.

    Tensors have the names that the graph's edges have: ``Cast_1:0``. Data operators are the inputs,
    constants are weights, and what the net output reads is the output. Control edges are
    attributes, for no tensor flows along them.

    Args:
        ge: the graph; its subgraphs are not part of the topology.
    """
    path = ge.source or Path(ge.name)
    reliable = (file := GeGraphFile.parse(path.name)) is None or file.stage == "original"
    infos = {
        f"{op.name}:{index}": _info(tensor, f"{op.name}:{index}", reliable)
        for op in ge.ops
        for index, tensor in enumerate(op.outputs)
    }
    inputs: list[str] = []
    weights: list[str] = []
    outputs: list[str] = []
    children: list[Node] = []
    rows: dict[str, OperationRow] = {}
    for op in ge.ops:
        read = tuple(f"{name}:{index}" for name, index in op.inputs)
        written = tuple(f"{op.name}:{index}" for index in range(len(op.outputs)))
        if op.type in INPUT_TYPES:
            inputs.extend(written or (f"{op.name}:0",))
        elif op.type in CONSTANT_TYPES:
            weights.extend(written or (f"{op.name}:0",))
        elif op.type in OUTPUT_TYPES:
            outputs.extend(read)
        else:
            children.append(Node(op.name, op.type, None, _param(op), read, written))
            rows[op.name] = OperationRow(
                tuple(infos.get(name, _UNKNOWN) for name in read),
                tuple(infos[name] for name in written),
                tuple(op.ports[slot] for slot in op.slots if slot < len(op.ports)),
            )
    name = ge.name or path.stem
    root = Node(name, name, None, "", tuple(inputs), tuple(outputs), children=tuple(children))
    graph = Graph("model", root, tuple(weights), (), ge.source, "ge")
    return graph, OperationTable(path.name, None, rows)


def _param(op: GeOp) -> dict[str, Any]:
    """Attributes in JSON types, and what else is known of an operator."""
    param = {key: _json(value) for key, value in op.attrs.items() if not _REPEATED.fullmatch(key)}
    if op.controls:
        param["control_inputs"] = list(op.controls)
    if any(tensor.origin for tensor in op.outputs):
        param["fx_tensors"] = [str(tensor.origin or "") for tensor in op.outputs]
    return param


def _json(value: AttrValue) -> Any:
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, GeTensor):
        return {"dtype": value.dtype_name, "shape": value.shape and list(value.shape)}
    return value


def _info(tensor: GeTensor, name: str, reliable: bool) -> TensorInfo:
    """Type and shape; where the description leaves them open, those of the FX value.

    A later view of the same memory may have replaced the FX value, so it comes second.

    Args:
        tensor: the description.
        name: name of the tensor, for sizes that have none.
        reliable: False for torchair's optimized graphs, where what is undefined is ``DT_FLOAT``.
    """
    meta = tensor.attrs.get(META_KEY)
    found = _META.match(meta) if isinstance(meta, str) else None
    dims: tuple[Dim, ...] | None = None
    info = TensorInfo(tensor.dtype, tensor.dtype_name, None)
    if found:
        texts = [text.strip() for text in found[2].split(",") if text.strip()]
        dims = tuple(_dim(text) for text in texts)
        if info.dtype is None or (info.dtype is DType.FLOAT32 and not reliable):
            info = TensorInfo(_TORCH_DTYPES.get(found[1]), found[1], None)
    elif info.dtype is DType.FLOAT32 and not reliable:
        info = _UNKNOWN
    shape = tensor.shape
    if shape is None or (dims is not None and -1 in shape and len(dims) == len(shape)):
        return replace(info, shape=dims)
    if -2 in shape:  # GE's mark of an unknown rank
        return info
    return replace(
        info,
        shape=tuple(d if d >= 0 else f"{name}.{axis}" for axis, d in enumerate(shape)),
    )


def _dim(text: str) -> Dim:
    number = whole_number(text)
    return text if number is None else number
