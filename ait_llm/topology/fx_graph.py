"""FX graphs: the ``graph.json`` that a capture of ``torch.compile`` writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.topology.graph import Graph, Node
from ait_llm.topology.nesting import Module, nest
from ait_llm.topology.shapes import OperationRow, OperationTable, TensorInfo

FILE_NAME = "graph.json"
_GETITEM = "<built-in function getitem>"
_DTYPES = {dtype.torch_name: dtype for dtype in DType if dtype.torch_name}
_UNKNOWN = TensorInfo(None, "", None)


def is_fx_graph(data: Any) -> bool:  # any JSON value
    """True for the content of a ``graph.json``."""
    return isinstance(data, dict) and "schema" in data and isinstance(data.get("nodes"), list)


def graph_from_fx(path: Path, data: dict[str, Any]) -> tuple[Graph, OperationTable]:
    """The topology in a ``graph.json``, and what it says of the tensors.

    Modules become graphs. A node that selects one result of another is left out; what reads it
    reads that result.

    Args:
        path: the file, for messages.
        data: its content.

    Raises:
        FormatError: a node lacks its name, reads one that comes later, or is of the wrong kind; the
            reason names it by its JSON path.
    """
    reader = _Reader(path)
    for index, value in enumerate(data["nodes"]):
        reader.add(f"$.nodes[{index}]", value)
    number = data.get("graph")
    name = f"graph_{number}" if isinstance(number, int) else path.stem
    root = Node(
        name=name,
        op_type=name,
        op_id=None,
        param="",
        inputs=tuple(reader.inputs),
        outputs=tuple(reader.outputs),
        children=nest(reader.operations, reader.outputs),
    )
    graph = Graph("model", root, tuple(reader.weights), (), path, "fx")
    return graph, OperationTable(path.name, None, reader.rows)


@dataclass(frozen=True, slots=True)
class _Result:
    """One result of a node."""

    name: str
    info: TensorInfo


class _Reader:
    """Collects the nodes of one graph."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, tuple[_Result, ...]] = {}
        self.inputs: list[str] = []
        self.weights: list[str] = []
        self.outputs: list[str] = []
        self.operations: list[tuple[Node, list[Module]]] = []
        self.rows: dict[str, OperationRow] = {}

    def add(self, where: str, value: Any) -> None:  # any JSON value
        if not isinstance(value, dict):
            raise FormatError(self.path, f"{where} is not a node")
        name, kind, target = (self._text(where, value, key) for key in ("name", "op", "target"))
        if name in self.results:
            raise FormatError(self.path, f"{where}.name {name!r} is the name of an earlier node")
        read = list(self._read(where, value))
        if kind == "output":
            self.outputs.extend(result.name for result in read)
            return
        if target == _GETITEM and (selected := self._selected(value)) is not None:
            self.results[name] = (selected,)
            return
        self.results[name] = _results(name, value.get("outputs"))
        if kind == "placeholder":
            self.inputs.append(name)
        elif kind == "get_attr":
            self.weights.append(name)
        else:
            self._operation(name, target, value, read)

    def _operation(
        self, name: str, target: str, value: dict[str, Any], read: list[_Result]
    ) -> None:
        results = self.results[name]
        node = Node(
            name=name,
            op_type=target,
            op_id=None,
            param=_constants(value),
            inputs=tuple(result.name for result in read),
            outputs=tuple(result.name for result in results),
        )
        self.operations.append((node, _modules(value)))
        self.rows[name] = OperationRow(
            tuple(result.info for result in read), tuple(result.info for result in results), ()
        )

    def _read(self, where: str, value: dict[str, Any]) -> Iterator[_Result]:
        """What a node reads, in the order of its arguments, repetitions kept."""
        names: list[Any] = [*_nodes_in(value.get("args")), *_nodes_in(value.get("kwargs"))]
        listed = value.get("inputs")
        for name in names or (listed if isinstance(listed, list) else ()):
            if not isinstance(name, str) or name not in self.results:
                raise FormatError(self.path, f"{where} reads {name!r}, which no earlier node is")
            yield from self.results[name]

    def _selected(self, value: dict[str, Any]) -> _Result | None:
        args = value.get("args")
        if not isinstance(args, list) or len(args) != 2 or type(args[1]) is not int:
            return None
        results = self.results.get(next(_nodes_in(args[:1]), ""), ())
        return results[args[1]] if -len(results) <= args[1] < len(results) else None

    def _text(self, where: str, value: dict[str, Any], key: str) -> str:
        text = value.get(key)
        if not isinstance(text, str) or not text:
            raise FormatError(self.path, f"{where}.{key} is not a name")
        return text


def _results(name: str, outputs: Any) -> tuple[_Result, ...]:
    described = outputs if isinstance(outputs, list) else []
    if len(described) < 2:
        return (_Result(name, _info(described[0]) if described else _UNKNOWN),)
    return tuple(_Result(f"{name}:{index}", _info(each)) for index, each in enumerate(described))


def _info(value: Any) -> TensorInfo:
    if not isinstance(value, dict):
        return _UNKNOWN
    dtype, shape = str(value.get("dtype", "")), value.get("shape")
    dims = tuple(dim if type(dim) is int else str(dim) for dim in shape or ())
    return TensorInfo(_DTYPES.get(dtype), dtype, dims if isinstance(shape, list) else None)


def _nodes_in(value: Any) -> Iterator[str]:
    """Names of the nodes in an argument, which nests as deep as JSON was read."""
    if isinstance(value, list):
        for item in value:
            yield from _nodes_in(item)
    elif isinstance(value, dict):
        name = value.get("node")
        if isinstance(name, str) and len(value) == 1:
            yield name
        else:
            for item in value.values():
                yield from _nodes_in(item)


def _constants(value: dict[str, Any]) -> dict[str, Any]:
    """Arguments that are no nodes, by position or name, and the line that made the node."""
    args = value.get("args")
    param: dict[str, Any] = {
        f"arg{index}": arg
        for index, arg in enumerate(args if isinstance(args, list) else ())
        if not isinstance(arg, dict) and not (isinstance(arg, list) and any(_nodes_in(arg)))
    }
    kwargs = value.get("kwargs")
    if isinstance(kwargs, dict):
        param.update((key, arg) for key, arg in kwargs.items() if not isinstance(arg, dict))
    source = value.get("source")
    if isinstance(source, dict):
        param["source"] = f"{source.get('file')}:{source.get('line')}"
        param["code"] = source.get("code")
    return param


def _modules(value: dict[str, Any]) -> list[Module]:
    """Modules of a node, outermost first; what the model itself computes lies in none."""
    modules = value.get("modules")
    named = (m for m in (modules if isinstance(modules, list) else ()) if isinstance(m, dict))
    return [_module(str(module.get("path") or "model"), module.get("type")) for module in named]


def _module(path: str, kind: Any) -> Module:
    """Graphs that were exported know no types of modules: there it is the name of the attribute."""
    names = [name for name in path.split(".") if name and not name.isdigit()]
    return path, str(kind or (names[-1] if names else "model"))
