"""Writes a topology as an ONNX model that the checker accepts and viewers can show.

The operations keep their own names in a domain of their own, so no viewer mistakes a graph called
``Gelu`` for the standard operator. The file holds no weights' values.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm import __version__
from ait_llm.core import DType
from ait_llm.core.new_files import temporary_beside
from ait_llm.core.optional import import_optional
from ait_llm.errors import AitError, FormatError, UsageError
from ait_llm.topology.attributes import compact_json, flatten_param
from ait_llm.topology.fx_graph import FILE_NAME as FX_FILE_NAME
from ait_llm.topology.graph import Graph, Param
from ait_llm.topology.shapes import OperationTable, TensorInfo, tensor_infos
from ait_llm.topology.sources import read_described
from ait_llm.topology.ssa import Body, Call, Program, to_program

IR_VERSION = 10  # the first with overloads, and with metadata on nodes, functions and values
MAX_BYTES = 2**31 - 1  # protobuf's limit for one message

_PROCESS = re.compile(r"(?:-?\d+_)?(\d+)")  # {PID}, or {device}_{PID} in dumps of msprobe
_PRODUCERS = {"atb": "ATB topology", "ge": "GE graph", "fx": "FX graph"}
_ELEMENT_TYPES = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT8_E4M3FN: "FLOAT8E4M3FN",
    DType.FLOAT8_E5M2: "FLOAT8E5M2",
    DType.FLOAT8_E8M0: "FLOAT8E8M0",
    DType.FLOAT4_E2M1: "FLOAT4E2M1",
}  # all others have the same name in ONNX, or no counterpart


@dataclass(frozen=True, slots=True)
class Conversions:
    """What a batch of conversions gave: the files written, and one error for each that failed."""

    written: tuple[Path, ...]
    failed: tuple[AitError, ...]


def topology_to_onnx(
    path: Path | str,
    level: int | None = None,
    *,
    output: Path | str | None = None,
    nested: bool | None = None,
    shapes: Path | str | int | None = None,
    check: bool = True,
) -> Path:
    """Convert a dumped layer or model topology to ONNX.

    Args:
        path: a graph file of a dump: topology JSON of ATB, ``graph.json`` of an FX dump, or a GE
            graph as text.
        level: depth of the nodes shown: 0 is the whole as one node, 1 its operations, and so on;
            -1 opens every graph. None is every level, nested.
        output: file to write; by default beside ``path``, ``.json`` replaced by ``.onnx`` (any
            other name gets ``.onnx`` appended).
        nested: keep graphs as functions, so that a viewer shows a model layer by layer; by default
            only when no level is given.
        shapes: where shapes and types come from: an operation table (csv), or the number of an
            execution; by default the first execution whose table lies in the same dump, or else
            the dumped tensors.
        check: run the ONNX checker with shape inference; what it finds becomes a warning.

    Returns:
        The file written. Equal inputs give equal bytes.

    Raises:
        FormatError: the topology or the table cannot be read.
        UsageError: the level is below -1, the execution is unknown, or the file cannot be written.
        MissingDependencyError: the ``onnx`` package is missing.
    """
    onnx = _import_onnx()
    path = Path(path)
    if level is not None and level < -1:
        raise UsageError(f"level {level} is not a depth; give 0, 1, 2, ... or -1 for every level")
    nested = level is None if nested is None else nested
    data = _model_bytes(onnx, path, level, nested, shapes)
    if check:
        try:
            onnx.checker.check_model(data, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            warnings.warn(f"{path}: the ONNX checker says: {error}", stacklevel=2)
    name = path.stem if path.suffix == ".json" else path.name
    return _write(Path(output) if output else path.with_name(name + ".onnx"), data)


def convert_topologies(
    paths: Iterable[Path | str], folder: Path | str | None = None
) -> Conversions:
    """Convert many files; one that fails is reported and does not stop the others.

    Args:
        paths: graph files, as for :func:`topology_to_onnx`.
        folder: where the models go, named after the graph files and created if need be; by default
            each lies beside its graph file.

    Raises:
        UsageError: the folder cannot be created.
        MissingDependencyError: the ``onnx`` package is missing.
    """
    _import_onnx()
    written: list[Path] = []
    failed: list[AitError] = []
    names: set[str] = set()
    if folder is not None:
        try:
            Path(folder).mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be created ({error.strerror})") from error
    for path in map(Path, paths):
        output = None if folder is None else Path(folder) / _unused_name(path, names)
        try:
            written.append(topology_to_onnx(path, output=output))
        except AitError as error:
            failed.append(error)
    return Conversions(tuple(written), tuple(failed))


def _unused_name(path: Path, taken: set[str]) -> str:
    """Name of a model in a folder of models; graphs of one name are numbered."""
    stem = path.absolute().parent.name if path.name == FX_FILE_NAME else path.stem
    name, number = f"{stem}.onnx", 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}.onnx"
    taken.add(name)
    return name


def _model_bytes(
    onnx: Any, path: Path, level: int | None, nested: bool, shapes: Path | str | int | None
) -> bytes:
    """The serialised model; everything it was built from is released on return."""
    graph, table = read_described(path, shapes)
    program = to_program(graph, None if level == -1 else level, nested=nested)
    model = _Writer(onnx, table, graph).model(program, level)
    size = model.ByteSize()
    if size > MAX_BYTES:
        raise FormatError(path, f"its ONNX model takes {size} bytes and the format ends at 2 GiB")
    return bytes(model.SerializeToString(deterministic=True))


class _Writer:
    """Builds the protobuf messages of one model."""

    def __init__(self, onnx: Any, table: OperationTable | None, graph: Graph) -> None:
        self.onnx = onnx
        self.graph = graph
        self.table = table
        self.weights = frozenset(graph.weights)
        self.attributes: dict[str, list[Any]] = {}
        self.infos = tensor_infos(graph.root, table) if table else {}
        self.operations = graph.producer  # domain of operations, and prefix of our notes
        self.functions = f"{graph.producer}.fn"  # domain of graphs that have a body

    def model(self, program: Program, level: int | None) -> Any:
        """The whole file as a ``ModelProto``."""
        nodes = sum(call.function is None for b in _bodies(program) for call in b.calls)
        model = self.onnx.ModelProto(
            ir_version=IR_VERSION, producer_name="ait-llm", producer_version=__version__
        )
        self._import_domains(model.opset_import, bool(program.functions))
        self._graph(model.graph, program)
        for body in program.functions:
            self._function(model.functions.add(), body)
        source = self.graph.source
        self._note(model, "kind", self.graph.kind)
        if source:
            model.doc_string = (
                f"{_PRODUCERS[self.graph.producer]} of {self.graph.name}, from {source.name}"
            )
            self._note(model, "source", source.name)
            process = _PROCESS.fullmatch(source.absolute().parent.name)
            self._note(model, "pid", process.group(1) if process else "")
        self._note(model, "level", "all" if level is None else str(level))
        self._note(model, "nodes", str(nodes))
        if self.table:
            execution = self.table.execution
            self._note(model, "shapes_from", self.table.name)
            self._note(model, "execution", "" if execution is None else str(execution))
        self._note(model, "unassigned_outputs", ", ".join(program.main.unassigned))
        return model

    def _graph(self, graph: Any, program: Program) -> None:
        main = program.main
        graph.name = main.name
        for call in main.calls:
            self._node(graph.node.add(), call)
        for name in main.inputs:
            self._value(graph.input.add(), name, name, required=True)
        for name in main.outputs:
            self._value(graph.output.add(), name, main.tensors[name], required=True)
        for name in program.weights:
            self._weight(graph, name)
        ends = {*main.inputs, *main.outputs, *self.weights}
        self._values(graph.value_info, main, ends)

    def _function(self, function: Any, body: Body) -> None:
        function.domain = self.functions
        function.name = body.node.op_type
        function.overload = body.name
        function.input.extend(body.inputs)
        function.output.extend(body.outputs)
        self._import_domains(function.opset_import, True)
        for call in body.calls:
            self._node(function.node.add(), call)
        self._values(function.value_info, body, set())

    def _node(self, node: Any, call: Call) -> None:
        source = call.node
        node.name = call.name
        node.op_type = source.op_type
        node.input.extend(call.inputs)
        node.output.extend(call.outputs)
        if call.function is None:
            node.domain = self.operations
        else:
            node.domain = self.functions
            node.overload = call.function
        self._note(node, "path", call.path)
        self._note(node, "ids", str(source.op_id) if source.op_id else "")
        if source.param is not None and source.param != "":
            text = compact_json(source.param)
            node.attribute.extend(self._attributes(text, source.param))
            self._note(node, "param", text)
        self._note(node, "side_effects", ", ".join(call.side_effects))
        self._note(node, "unassigned_outputs", ", ".join(call.unassigned))
        labels = self._port_names(call)
        if labels:  # the form that Netron takes as labels of an unknown operator's inputs
            node.metadata_props.add(key="input_names", value=str(list(labels)))

    def _attributes(self, text: str, param: Param) -> list[Any]:
        """Attributes of a parameter; the layers of a model repeat the same few parameters."""
        if text not in self.attributes:
            if len(self.attributes) >= 1024:
                self.attributes.clear()
            make = self.onnx.helper.make_attribute
            self.attributes[text] = [make(*item) for item in flatten_param(param).items()]
        return self.attributes[text]

    def _port_names(self, call: Call) -> tuple[str, ...]:
        if call.function is not None:  # its body names them
            return ()
        row = self.table.rows.get(call.node.name) if self.table else None
        if row and len(row.ports) == len(call.inputs):
            return row.ports
        # A viewer draws a weight inside the operation's box: a name says more than its position.
        return call.inputs if not self.weights.isdisjoint(call.inputs) else ()

    def _values(self, target: Any, body: Body, described: set[str]) -> None:
        for value, tensor in body.tensors.items():
            if tensor in self.infos and value not in described:
                self._value(target.add(), value, tensor, required=False)

    def _value(self, target: Any, value: str, tensor: str, *, required: bool) -> None:
        """Describe one value; ``required`` adds what the checker wants even of an unknown one."""
        target.name = value
        infos = self.infos.get(tensor, [])
        info = infos[0] if infos else TensorInfo(None, "", None)
        target.type.tensor_type.elem_type = self._element_type(info.dtype)
        if info.shape is not None:
            target.type.tensor_type.shape.SetInParent()  # rank 0 has a shape too
            for dim in info.shape:
                added = target.type.tensor_type.shape.dim.add()
                if isinstance(dim, int):
                    added.dim_value = dim
                else:
                    added.dim_param = dim
        elif required:
            target.type.tensor_type.shape.dim.add().dim_param = f"shape({value})"
        if info.dtype_name and not target.type.tensor_type.elem_type:
            self._note(target, "dtype", info.dtype_name)
        if len(infos) > 1:
            told = "; ".join(f"{i.dtype_name}{_dims(i.shape)}" for i in infos)
            self._note(target, "shapes", told)
            target.doc_string = f"described differently by its users: {told}"

    def _weight(self, graph: Any, name: str) -> None:
        """Declare a weight without data: a sparse tensor can have a true shape and no values."""
        infos = self.infos.get(name, [])
        info = infos[0] if infos else TensorInfo(None, "", None)
        element_type = self._element_type(info.dtype)
        dims = [dim for dim in info.shape or () if isinstance(dim, int) and dim > 0]
        if element_type and info.shape and len(dims) == len(info.shape):
            sparse = graph.sparse_initializer.add()
            sparse.values.name = name
            sparse.values.data_type = element_type
            sparse.values.dims.append(0)
            sparse.indices.data_type = self.onnx.TensorProto.INT64
            sparse.indices.dims.append(0)
            sparse.dims.extend(dims)
        else:
            dense = graph.initializer.add()
            dense.name = name
            dense.data_type = element_type or self.onnx.TensorProto.UINT8
            dense.dims.append(0)
            dense.doc_string = "shape not recorded" if not info.shape else _dims(info.shape)

    def _element_type(self, dtype: DType | None) -> int:
        if dtype is None:
            return 0
        name = _ELEMENT_TYPES.get(dtype, dtype.name)
        return int(getattr(self.onnx.TensorProto, name, 0))  # 0 is UNDEFINED

    def _import_domains(self, target: Any, with_functions: bool) -> None:
        for domain in (self.operations, self.functions) if with_functions else (self.operations,):
            target.add(domain=domain, version=1)

    def _note(self, target: Any, key: str, value: str) -> None:
        if value:
            target.metadata_props.add(key=f"{self.operations}.{key}", value=value)


def _bodies(program: Program) -> tuple[Body, ...]:
    return (program.main, *program.functions)


def _dims(shape: tuple[int | str, ...] | None) -> str:
    return "[" + ("?" if shape is None else ",".join(map(str, shape))) + "]"


def _write(path: Path, data: bytes) -> Path:
    """Write under a temporary name and rename: a viewer may be watching the folder."""
    temporary: Path | None = None
    try:
        handle, temporary = temporary_beside(path)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise UsageError(
            f"{path}: the ONNX file cannot be written ({error.strerror or error}); "
            "name a file in a writable folder with output="
        ) from error
    return path


def _import_onnx() -> Any:  # the module, whose message types are generated at run time
    onnx = import_optional("onnx", "converting a topology")
    for part in ("checker", "helper", "shape_inference"):
        import_optional(f"onnx.{part}", "converting a topology")
    return onnx
