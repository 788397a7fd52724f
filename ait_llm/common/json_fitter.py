"""The import path of the topology conversion that the manual documents."""

from __future__ import annotations

from pathlib import Path

from ait_llm.topology import topology_to_onnx


def atb_json_to_onnx(path: Path | str, level: int = -1) -> Path:
    """Convert a dumped layer or model topology to ONNX, beside the JSON file.

    Args:
        path: topology JSON of a dump.
        level: depth of the nodes shown; 1 is depth one, -1 the leaves at any depth.

    Returns:
        The file written. :func:`ait_llm.topology.topology_to_onnx` has more options and the errors.
    """
    return topology_to_onnx(path, level)
