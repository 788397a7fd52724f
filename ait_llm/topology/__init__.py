"""Graphs of operations, and their conversion to ONNX."""

from ait_llm.topology.atb_json import read_topology
from ait_llm.topology.graph import Graph, Node, op_id_of
from ait_llm.topology.to_onnx import Conversions, convert_topologies, topology_to_onnx

__all__ = [
    "Conversions",
    "Graph",
    "Node",
    "convert_topologies",
    "op_id_of",
    "read_topology",
    "topology_to_onnx",
]
