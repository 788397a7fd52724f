"""A graph of torch.fx as ``graph.json`` has it (docs/formats.md)."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ait_llm.dump.fx.graph_json import described

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SOURCE = re.compile(r'File "(.*)", line ([0-9]+), in (.*)')


def target_of(node: Node) -> str:
    """``aten.mul.Tensor``, or the text of a Python function without its address."""
    text = _ADDRESS.sub("", str(node.target))
    return text.replace("/", "_").replace("\0", "_")


def is_dumped(node: Node) -> bool:
    """True for nodes that compute; torchair writes no files for the others either."""
    return node.op == "call_function" and node.target is not operator.getitem


def describe_graph(module: GraphModule, **facts: Any) -> dict[str, Any]:
    """The graph in JSON types.

    Args:
        module: an AOT graph.
        facts: what else the file says: number, process, phase.
    """
    return described(
        [_node(node) for node in module.graph.nodes], torch=str(torch.__version__), **facts
    )


def _node(node: Node) -> dict[str, Any]:
    line: dict[str, Any] = {
        "name": node.name,
        "op": node.op,
        "target": target_of(node),
        "inputs": [each.name for each in node.all_input_nodes],
        "args": [_argument(each) for each in node.args],
        "outputs": list(_outputs(node.meta.get("val"))),
    }
    if node.kwargs:
        line["kwargs"] = {name: _argument(each) for name, each in node.kwargs.items()}
    if modules := list(_modules(node)):
        line["modules"] = modules
    if source := _source(node):
        line["source"] = source
    return line


def _argument(value: Any) -> Any:
    """A node as ``{"node": name}``, a list of arguments as a list, a constant as it is."""
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, (tuple, list)):
        return [_argument(each) for each in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no inf and no nan
    return str(value)


def _outputs(value: Any) -> Iterator[dict[str, Any] | None]:
    """Type and shape of each result; None for a result that is no tensor."""
    for each in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(each, torch.Tensor):
            yield {
                "dtype": str(each.dtype).removeprefix("torch."),
                "shape": [_dim(dim) for dim in each.shape],
                "device": str(each.device),
            }
        elif isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            yield {"dtype": type(each).__name__, "shape": [], "value": str(each)}
        else:
            yield None


def _dim(dim: Any) -> int | str:
    """A size, or the text of a symbolic one."""
    return dim if type(dim) is int else str(dim)


def _modules(node: Node) -> Iterator[dict[str, str]]:
    """The modules that the node came from, outermost first."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    for path, kind in stack.values():
        yield {"path": str(path), "type": kind if isinstance(kind, str) else kind.__qualname__}


def _source(node: Node) -> dict[str, Any] | None:
    """The innermost line of the program that made the node."""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    for number in range(len(lines) - 1, -1, -1):
        if match := _SOURCE.search(lines[number]):
            code = lines[number + 1].strip() if number + 1 < len(lines) else ""
            return {"file": match[1], "line": int(match[2]), "function": match[3], "code": code}
    return None
