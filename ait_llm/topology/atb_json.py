"""Reads the layer and model topology that a capture wrote (``layer/*.json``, ``model/*.json``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ait_llm.errors import FormatError
from ait_llm.formats.opening import open_regular
from ait_llm.topology.graph import Graph, Node, op_id_of

MAX_FILE_BYTES = 512 << 20  # about two million operations
MAX_DEPTH = 200  # nested graphs; real models have fewer than ten
MAX_NAME_LENGTH = 4096  # names come from user code and are repeated in every path

_DUMP_AGAIN = "The run may have been killed while writing; dump the topology again"


def read_topology(path: Path | str) -> Graph:
    """Read one topology file.

    Keys that are absent mean empty lists: writers leave out what is empty, and model-level nodes
    have no parameters.

    Raises:
        FormatError: the file cannot be read, is not JSON, is too large or too deep, or a node lacks
            its name or type; the reason names the node by its JSON path.
    """
    path = Path(path)
    return graph_from_atb(path, load_json(path))


def graph_from_atb(path: Path, data: Any) -> Graph:  # any JSON value
    """The topology in the content of a topology file; errors as of :func:`read_topology`."""
    if not isinstance(data, dict):
        raise FormatError(path, f"the file holds {_kind(data)} at $, not an object")
    if "modelName" in data:
        return _read_model(path, data)
    return Graph("layer", _read_tree(path, data, "opName", "opType"), source=path)


def load_json(path: Path) -> Any:  # any JSON value
    """The content of a JSON file of reasonable size.

    Raises:
        FormatError: it cannot be read, is too large, or is not JSON.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise FormatError(
                path, f"{size} bytes are more than the {MAX_FILE_BYTES} of a topology"
            )
        with open_regular(path) as file:
            text = file.read().decode("utf-8")
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FormatError(path, f"byte {error.start} is not UTF-8 text") from error
    try:
        value = json.loads(text)
        if "\\u" in text:  # an escape can spell half a character, which is no text anywhere else
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise FormatError(path, "the JSON is nested too deeply") from None
    except ValueError as error:  # malformed text, or a number with thousands of digits
        raise FormatError(path, f"not valid JSON: {error}", _DUMP_AGAIN) from error


def _read_model(path: Path, data: dict[str, Any]) -> Graph:
    # A model has no type of its own: its name stands for both.
    root = _read_tree(path, data, "modelName", "modelName")
    caches = chain(
        _names(path, data, "kCacheTensors", "$"), _names(path, data, "vCacheTensors", "$")
    )
    listed = _names(path, data, "weightTensors", "$")
    # Older frameworks list no weights; their names still say what they are.
    prefix = f"{root.name}_weight_"
    unlisted = (name for node in root.leaves() for name in node.inputs if name.startswith(prefix))
    weights = tuple(dict.fromkeys(chain(listed, unlisted)))
    return Graph("model", root, weights, tuple(dict.fromkeys(caches)), path)


def _read_tree(path: Path, data: dict[str, Any], name_key: str, type_key: str) -> Node:
    """Build the nodes bottom-up with an explicit stack: the file chooses the depth."""
    found: list[tuple[dict[str, Any], str, int]] = []  # object, JSON path, number of children
    stack: list[tuple[Any, str, int]] = [(data, "$", 0)]
    while stack:
        value, where, depth = stack.pop()
        if not isinstance(value, dict):
            raise FormatError(path, f"{where} is {_kind(value)}, not an operation")
        if depth > MAX_DEPTH:
            raise FormatError(path, f"{where} is nested deeper than {MAX_DEPTH} graphs")
        children = value.get("nodes")
        if children is None:
            children = []
        if not isinstance(children, list):
            raise FormatError(path, f"{where}.nodes is {_kind(children)}, not a list")
        found.append((value, where, len(children)))
        stack.extend(
            (child, f"{where}.nodes[{index}]", depth + 1)
            for index, child in reversed(list(enumerate(children)))
        )
    shared: dict[str, str] = {}  # equal names become one string: files repeat each name many times
    built: list[Node] = []
    for value, where, count in reversed(found):  # children come before their parent, last one first
        children_of = tuple(built.pop() for _ in range(count))
        keys = (name_key, type_key) if where == "$" else ("opName", "opType")
        built.append(_build(path, value, where, keys, children_of, shared))
    return built[0]


def _build(
    path: Path,
    value: dict[str, Any],
    where: str,
    keys: tuple[str, str],
    children: tuple[Node, ...],
    shared: dict[str, str],
) -> Node:
    name, op_type = (_text(path, value, key, where) for key in keys)
    inputs, outputs, internals = (
        tuple(shared.setdefault(text, text) for text in _names(path, value, key, where))
        for key in ("inTensors", "outTensors", "internalTensors")
    )
    return Node(
        name=name,
        op_type=shared.setdefault(op_type, op_type),
        op_id=None if keys[0] == "modelName" else op_id_of(name, op_type),
        param=value.get("param"),
        inputs=inputs,
        outputs=outputs,
        internals=internals,
        children=children,
    )


def _text(path: Path, value: dict[str, Any], key: str, where: str) -> str:
    text = value.get(key)
    if not isinstance(text, str) or not text:
        problem = f"is {_kind(text)}" if key in value else "is missing"
        raise FormatError(path, f"{where}.{key} {problem}; an operation needs a non-empty text")
    if len(text) > MAX_NAME_LENGTH:
        raise FormatError(path, f"{where}.{key} has {len(text)} characters")
    return text


def _names(path: Path, value: dict[str, Any], key: str, where: str) -> Iterator[str]:
    names = value.get(key)
    if names is None:
        return
    if not isinstance(names, list):
        raise FormatError(path, f"{where}.{key} is {_kind(names)}, not a list of tensor names")
    for index, name in enumerate(names):
        if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH:
            raise FormatError(path, f"{where}.{key}[{index}] is not the name of a tensor")
        yield name


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    return "a list" if isinstance(value, list) else "an object"
