"""Graphs of operations, and their conversion to ONNX."""

from ait_llm.topology.ge_files import GeGraphFile, read_ge_graph, stream_ge_ops
from ait_llm.topology.ge_graph import FxOrigin, GeGraph, GeOp, GeTensor
from ait_llm.topology.graph import Graph, Node, op_id_of
from ait_llm.topology.sources import find_graph_files, read_topology
from ait_llm.topology.to_onnx import Conversions, convert_topologies, topology_to_onnx

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
