"""Graphs of operations, and their conversion to ONNX.

Names are loaded when first used: few commands convert graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ait_llm.on_demand import on_demand

if TYPE_CHECKING:
    from ait_llm.topology.ge_files import GeGraphFile as GeGraphFile
    from ait_llm.topology.ge_files import read_ge_graph as read_ge_graph
    from ait_llm.topology.ge_files import stream_ge_ops as stream_ge_ops
    from ait_llm.topology.ge_graph import FxOrigin as FxOrigin
    from ait_llm.topology.ge_graph import GeGraph as GeGraph
    from ait_llm.topology.ge_graph import GeOp as GeOp
    from ait_llm.topology.ge_graph import GeTensor as GeTensor
    from ait_llm.topology.graph import Graph as Graph
    from ait_llm.topology.graph import Node as Node
    from ait_llm.topology.graph import op_id_of as op_id_of
    from ait_llm.topology.sources import find_graph_files as find_graph_files
    from ait_llm.topology.sources import read_topology as read_topology
    from ait_llm.topology.to_onnx import Conversions as Conversions
    from ait_llm.topology.to_onnx import convert_topologies as convert_topologies
    from ait_llm.topology.to_onnx import topology_to_onnx as topology_to_onnx

__all__ = [
    "Conversions",
    "FxOrigin",
    "GeGraph",
    "GeGraphFile",
    "GeOp",
    "GeTensor",
    "Graph",
    "Node",
    "convert_topologies",
    "find_graph_files",
    "op_id_of",
    "read_ge_graph",
    "read_topology",
    "stream_ge_ops",
    "topology_to_onnx",
]

__getattr__ = on_demand(
    __name__,
    {
        "Conversions": "ait_llm.topology.to_onnx",
        "FxOrigin": "ait_llm.topology.ge_graph",
        "GeGraph": "ait_llm.topology.ge_graph",
        "GeGraphFile": "ait_llm.topology.ge_files",
        "GeOp": "ait_llm.topology.ge_graph",
        "GeTensor": "ait_llm.topology.ge_graph",
        "Graph": "ait_llm.topology.graph",
        "Node": "ait_llm.topology.graph",
        "convert_topologies": "ait_llm.topology.to_onnx",
        "find_graph_files": "ait_llm.topology.sources",
        "op_id_of": "ait_llm.topology.graph",
        "read_ge_graph": "ait_llm.topology.ge_files",
        "read_topology": "ait_llm.topology.sources",
        "stream_ge_ops": "ait_llm.topology.ge_files",
        "topology_to_onnx": "ait_llm.topology.to_onnx",
    },
)
