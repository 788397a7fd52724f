"""Element types that a graph had where the files of its dump hold wider ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ait_llm.core import DType
from ait_llm.dumps.fx_records import InFewBits
from ait_llm.errors import FormatError
from ait_llm.formats.opening import contained_file, read_small

FILE = "graph.json"
_MAX_BYTES = 256 << 20
# Types that .npy files cannot name.
_BY_NAME = {
    each.torch_name: each
    for each in DType
    if each.torch_name is not None
    and each.numpy_type is not None
    and each.numpy_type.__module__ == "ml_dtypes"
}

Places = Mapping[tuple[str, str], DType]


def read_graph(folder: Path, root: Path) -> list[dict[str, Any]]:
    """The nodes in the ``graph.json`` of a graph.

    Args:
        folder: of the graph.
        root: folder that the file must not leave.

    Returns:
        Nothing where there is no such file, as in dumps of torchair.

    Raises:
        FormatError: the file is damaged.
    """
    path = folder / FILE
    return _nodes(path, root) if path.exists() else []


def logical_types(nodes: Sequence[Mapping[str, Any]]) -> Places:
    """Types of arguments and results by node and ``INPUT.0``, as ``graph.json`` says."""
    results = {node["name"]: _results(node) for node in nodes}
    found: dict[tuple[str, str], DType] = {}
    for node in nodes:
        name = node["name"]
        for place, dtype in enumerate(results[name]):
            if dtype is not None:
                found[name, f"OUTPUT.{place}"] = dtype
        args = node.get("args")
        for stem, argument in _arguments(args if isinstance(args, list) else []):
            types = results.get(argument, ())
            if types and types[0] is not None:
                found[name, stem] = types[0]
    return found


def weights_in_few_bits(
    nodes: Sequence[Mapping[str, Any]],
) -> Mapping[tuple[str, str], InFewBits]:
    """Arguments that are weights of few bits, by node and ``INPUT.1``."""
    weights = {node["name"]: found for node in nodes if (found := _in_few_bits(node)) is not None}
    if not weights:
        return {}
    read: dict[tuple[str, str], InFewBits] = {}
    for node in nodes:
        args = node.get("args")
        for stem, argument in _arguments(args if isinstance(args, list) else []):
            if argument in weights:
                read[node["name"], stem] = weights[argument]
    return read


def _in_few_bits(node: Mapping[str, Any]) -> InFewBits | None:
    about = node.get("quantised")
    if not isinstance(about, dict):
        return None
    words, rounding = about.get("stored_as"), about.get("rounding")
    if not isinstance(words, str) or not isinstance(rounding, int | float) or not 0 <= rounding < 1:
        return None
    return InFewBits(words, float(rounding))


def _nodes(path: Path, root: Path) -> list[dict[str, Any]]:
    text = read_small(contained_file(path, root), _MAX_BYTES, named=path)
    try:
        nodes = json.loads(text)["nodes"]
        if all(isinstance(node["name"], str) for node in nodes):
            return list(nodes)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise FormatError(path, "is not the description of a graph")


def _results(node: Mapping[str, Any]) -> list[DType | None]:
    outputs = node.get("outputs")
    return [
        _BY_NAME.get(str(each.get("dtype"))) if isinstance(each, dict) else None
        for each in (outputs if isinstance(outputs, list) else [])
    ]


def _arguments(args: list[Any]) -> list[tuple[str, str]]:
    """Places and names of the nodes among the arguments."""
    found = []
    for place, value in enumerate(args):
        if isinstance(value, dict):
            found.append((f"INPUT.{place}", str(value.get("node"))))
        elif isinstance(value, list):
            found += [
                (f"INPUT.{place}.{number}", str(each.get("node")))
                for number, each in enumerate(value)
                if isinstance(each, dict)
            ]
    return found
