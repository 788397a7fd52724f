"""``graph.json``: the graph behind a folder of nodes (docs/formats.md); free of torch."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ait_llm import __version__

FILE = "graph.json"
SCHEMA = 1


def described(nodes: Sequence[Any], **facts: Any) -> dict[str, Any]:
    """The content of the file.

    Args:
        nodes: in the order in which they run.
        facts: what else it says: version of the library, number, process, phase.
    """
    head = {"schema": SCHEMA, "producer": f"ait-llm {__version__}"}
    return {**head, **facts, "nodes": list(nodes)}


def write_graph(path: Path, graph: dict[str, Any]) -> None:
    """Write it in one piece: a reader sees all of it or none.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_suffix(".json.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(partial, flags, 0o640)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(graph, file, separators=(",", ":"))
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
