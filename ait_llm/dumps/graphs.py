"""Graphs that a run reported, as far as a dump needs them: names, places, and operation ids."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from ait_llm.dumps.atb_tree import subfolders_if_any
from ait_llm.dumps.model import TopologyFile
from ait_llm.formats.opening import open_regular

_PROCESS = re.compile(r"(?:-?[0-9]+_)?([0-9]{1,19})")
_MAX_GRAPH_BYTES = 256 * 1024 * 1024


def list_graphs(folder: Path, pid: int | None = None) -> tuple[TopologyFile, ...]:
    """The graph files of all processes, or of one, in the natural order of their names."""
    files = [
        TopologyFile(int(match[1]), path.stem, path)
        for match in subfolders_if_any(folder, _PROCESS)
        if pid in (None, int(match[1]))
        for path in (folder / match[0]).glob("*.json")
    ]
    return tuple(sorted(files, key=lambda file: (file.pid, _natural(file.name))))


def graph_ids(path: Path, top: int) -> frozenset[tuple[int, ...]] | None:
    """Ids of all operations in a layer graph: each node has its parent's ids and its index.

    Args:
        path: ``layer/{PID}/{opName}.json``.
        top: id of the top-level operation.

    Returns:
        None if the file is not a graph; it is only evidence here, its own reader says what is
        wrong with it.
    """
    with open_regular(path) as file:
        text = file.read(min(os.fstat(file.fileno()).st_size, _MAX_GRAPH_BYTES))
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ids: set[tuple[int, ...]] = set()
    pending: list[tuple[object, tuple[int, ...]]] = [(graph, (top,))]
    while pending:
        node, node_id = pending.pop()
        if not isinstance(node, dict):
            return None
        ids.add(node_id)
        children = node.get("nodes", [])
        if not isinstance(children, list):
            return None
        pending += [(child, (*node_id, index)) for index, child in enumerate(children)]
    return frozenset(ids)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key under which ``Layer_2`` comes before ``Layer_10``."""
    return [
        (int(part), "") if part.isdigit() and part.isascii() and len(part) < 20 else (-1, part)
        for part in re.split(r"([0-9]+)", name)
    ]
