"""Nodes of FX graphs as a program, and other operations that are known by names alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.common_nodes import CommonNode, graphs_of, nodes_of_flow, nodes_of_graph
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.flow import Flow, whole_numbers
from ait_llm.program.one_pass import Pass
from ait_llm.program.operator_program import OperatorProgram
from ait_llm.program.roles_fx import kind_of


def program_of_nodes(run: Pass) -> OperatorProgram:
    """A pass whose operations are single operators with names of their own."""
    return OperatorProgram(run, _calls, _nodes)


def _nodes(run: Pass, flow: Flow) -> dict[str, CommonNode]:
    if len(graphs_of(run)) > 1:
        return {}
    return nodes_of_graph(run) or nodes_of_flow(run, flow, lambda operation: operation.type)


def _calls(run: Pass, found: Flow) -> tuple[CallGraph, Sequence[int]]:
    calls: list[Call] = []
    shapes: dict[int, tuple[int, ...]] = {}
    for op, operation in enumerate(run.operations):
        calls.append(_call(found, op, operation))
        for tensor in operation.tensors:
            value, shape = found.at(op, tensor.role, tensor.index), shape_of(tensor)
            if value is not None and shape is not None:
                shapes.setdefault(value.number, shape)
    return CallGraph(calls, shapes, whole_numbers(found)), range(len(calls))


def _call(found: Flow, op: int, operation: Operation) -> Call:
    inputs: list[int] = []
    numbers: list[float] = []
    for tensor in operation.inputs:
        number = _number(tensor)
        value = found.at(op, "in", tensor.index)
        if number is not None:
            numbers.append(number)
        elif value is not None:
            inputs.append(value.number)
    written = [found.at(op, "out", tensor.index) for tensor in operation.outputs]
    outputs = tuple(value.number for value in written if value is not None)
    kind = kind_of(operation.type)
    if kind == "ms_FusedMatMul":
        options = params_of(operation)
        numbers.append(float(options.get("alpha", 1.0)))
        if any(options.get(turned) for turned in ("transA", "transB", "transBatchA")):
            kind = f"{kind}_turned"  # its second factor is no weight as other products read it
    # what made a result that was lost is part of nothing that can be told
    return Call(kind if outputs else "", tuple(inputs), outputs, tuple(numbers))


def _number(tensor: Tensor) -> float | None:
    """A plain number among the arguments of a node."""
    shape = shape_of(tensor)
    if shape is None or len(shape) or prod(shape) != 1:
        return None
    try:
        return float(tensor.nd().reshape(-1)[0])
    except (AitError, ValueError, TypeError):
        return None
