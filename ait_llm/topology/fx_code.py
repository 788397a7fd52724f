"""The FX graph in the comments of torchair's ``.py`` graph files.

torchair writes a line ``## FX Code: name: type = target(arguments)`` before the operators that it
makes of an FX node. Nodes without a place in the program have no such line: what they compute
appears as an input of the graph, like anything else that is read and not computed.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from ait_llm.core import whole_number
from ait_llm.errors import FormatError
from ait_llm.formats.opening import open_regular

_MAX_LINE = 1 << 20
_TYPE = r"torch\.(\w+)\[([^\]]*)\][\w:]*"
_SYMBOL = r'"Sym\([^"]*\)"'
_NODE = re.compile(rf"## FX Code: (\w+)(?:: (?:{_TYPE}|{_SYMBOL}))? = ([\w.]+)\((.*)\)\s*")
_ARGUMENT = re.compile(
    rf"(?:^|(?<=[\[(=])|(?<=, ))([A-Za-z_]\w*)(?![\w=])(?:: (?:{_TYPE}|({_SYMBOL})))?"
)
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'")
_INPUT = re.compile(r'\w+ = ge\.(?:Data|RefData)\(.*node_name="(\w+)"\)\s*')
_SOURCE = re.compile(r'# File "([^"]*)", line (\d{1,9})')
_GETITEM = re.compile(r"(\w+)(?:: [^,]*)?, (\d{1,6})")


def read_fx_code(path: Path) -> dict[str, Any]:
    """The nodes of the graph in the form of ``graph.json``.

    Raises:
        FormatError: the file cannot be read or holds no line of FX code; the reason names a line
            that cannot be read.
    """
    nodes: dict[str, dict[str, Any]] = {}
    source: dict[str, Any] | None = None
    found_code = False
    with io.TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_MAX_LINE), ""), 1):
            if given := _INPUT.fullmatch(line):
                nodes.setdefault(given[1], _placeholder(given[1], None, None))
            elif place := _SOURCE.match(line):
                source = {"file": place[1], "line": int(place[2]), "code": None}
            elif line.startswith("## FX Code:"):
                found = _NODE.fullmatch(line)
                if found is None:
                    raise FormatError(path, f"line {number} is not a node of FX code")
                found_code = True
                _add(nodes, found, source)
    if not found_code:
        raise FormatError(path, "holds no line of FX code", "Dump the graph as txt to read GE's")
    return {"schema": 1, "nodes": list(nodes.values())}


def _add(
    nodes: dict[str, dict[str, Any]], found: re.Match[str], source: dict[str, Any] | None
) -> None:
    name, dtype, shape, target, arguments = found.groups()
    output = _output(dtype, shape)
    node: dict[str, Any] = {"name": name, "op": "call_function", "outputs": [output]}
    if target == "operator.getitem" and (selects := _GETITEM.fullmatch(arguments)):
        index = int(selects[2])
        producer = nodes.get(selects[1])
        if producer is not None:  # its results are described where they are selected
            known = producer["outputs"]
            known.extend([None] * (index + 1 - len(known)))
            known[index] = output
            node |= {"target": "<built-in function getitem>", "args": [{"node": selects[1]}, index]}
            nodes[name] = node
            return
    read = []
    for argument in _ARGUMENT.finditer(_STRING.sub("''", arguments)):
        if argument[1] not in nodes:
            if argument[2] is None and argument[4] is None:
                continue  # a constant such as None or torch.float32
            nodes[argument[1]] = _placeholder(argument[1], argument[2], argument[3])
        elif argument[2] and nodes[argument[1]]["outputs"] == [None]:
            nodes[argument[1]]["outputs"] = [_output(argument[2], argument[3])]
        read.append(argument[1])
    node |= {"target": target.removeprefix("torch.ops."), "inputs": read, "source": source}
    nodes[name] = node


def _placeholder(name: str, dtype: str | None, shape: str | None) -> dict[str, Any]:
    return {"name": name, "op": "placeholder", "target": name, "outputs": [_output(dtype, shape)]}


def _output(dtype: str | None, shape: str | None) -> dict[str, Any] | None:
    if dtype is None or shape is None:
        return None
    dims = [
        dim if (size := whole_number(dim)) is None else size for dim in shape.split(", ") if dim
    ]
    return {"dtype": dtype, "shape": dims}
