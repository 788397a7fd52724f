"""Graph files of every kind: finding them in a dump, and reading them as topologies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ait_llm.errors import UsageError
from ait_llm.formats.opening import open_regular
from ait_llm.topology.atb_json import graph_from_atb, load_json
from ait_llm.topology.fx_code import read_fx_code
from ait_llm.topology.fx_graph import FILE_NAME, graph_from_fx, is_fx_graph
from ait_llm.topology.ge_files import GeGraphFile, read_ge_graph
from ait_llm.topology.ge_topology import graph_from_ge
from ait_llm.topology.graph import Graph
from ait_llm.topology.shapes import OperationTable, find_table
from ait_llm.topology.tensor_shapes import table_from_tensors

MAX_DEPTH = 8  # folders below the one that was given
_GE_SUFFIXES = (".txt", ".pbtxt")
_GE_OWN = re.compile(r"ge_proto_.*\.txt")
_ATB_FOLDERS = ("layer", "model")


def read_topology(path: Path | str) -> Graph:
    """Read one graph file.

    Args:
        path: a layer or model JSON of an ATB capture, the ``graph.json`` of an FX dump, a GE graph
            (``.txt``, ``.pbtxt``), or torchair's ``.py``, of which the FX graph is read.

    Raises:
        FormatError: the file cannot be read or is malformed; the reason names the place.
    """
    return _read(Path(path))[0]


def read_described(
    path: Path | str, shapes: Path | str | int | None = None
) -> tuple[Graph, OperationTable | None]:
    """Read one graph file, and what is known of its tensors.

    Args:
        path: as for :func:`read_topology`.
        shapes: for ATB, which operation table to take; see :func:`find_table`. Other graphs tell
            types and shapes themselves.

    Raises:
        FormatError: the file or the table cannot be read.
        UsageError: the execution is unknown, or a table was named for another kind of graph.
    """
    path = Path(path)
    graph, table = _read(path)
    if table is not None:
        if shapes is not None:
            raise UsageError(f"{path} tells shapes itself; leave out shapes={shapes!r}")
        return graph, table
    table = find_table(path, shapes)
    return graph, table_from_tensors(path, graph.root) if table is None else table


def find_graph_files(folder: Path) -> Iterator[Path]:
    """All graph files of a dump, folder by folder by their names; links are not followed."""
    for name, folders, files in os.walk(folder):
        here = Path(name)
        if len(here.relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        folders.sort()
        for file in sorted(files):
            if _is_graph_file(here / file):
                yield here / file


def _is_graph_file(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.suffix == ".json":
        return path.name == FILE_NAME or path.parent.parent.name in _ATB_FOLDERS
    return bool(GeGraphFile.parse(path.name) or _GE_OWN.fullmatch(path.name))


def _read(path: Path) -> tuple[Graph, OperationTable | None]:
    if path.suffix == ".py":
        return graph_from_fx(path, read_fx_code(path))
    if path.suffix in _GE_SUFFIXES and not _is_json(path):
        return graph_from_ge(read_ge_graph(path))
    data = load_json(path)
    if is_fx_graph(data):
        return graph_from_fx(path, data)
    return graph_from_atb(path, data), None


def _is_json(path: Path) -> bool:
    """True for an object of JSON; a protobuf message has no brace before its first field."""
    with open_regular(path) as file:
        return file.read(64).lstrip()[:1] == b"{"
