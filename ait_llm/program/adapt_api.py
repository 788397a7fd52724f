"""Calls of functions and modules, as API captures have them, as a program."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.program.call_modules import modules_around
from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.common_nodes import CommonNode, nodes_of_flow
from ait_llm.program.describe import is_float, params_of, shape_of
from ait_llm.program.flow import Flow, whole_numbers
from ait_llm.program.one_pass import Pass
from ait_llm.program.operator_program import OperatorProgram
from ait_llm.program.roles_api import api_kind

_LOOKED_AT = 4096  # elements of a weight
_MOST = sys.float_info.max  # of what a float holds; a crafted record may have more


def program_of_calls(run: Pass) -> OperatorProgram:
    """A pass of kind ``api`` or ``ptdbg``: its forward calls."""
    return OperatorProgram(run, _calls, _nodes)


def _nodes(run: Pass, flow: Flow) -> dict[str, CommonNode]:
    return nodes_of_flow(run, flow, lambda each: f"{each.direction} {each.api_name}")


def _calls(run: Pass, flow: Flow) -> tuple[CallGraph, Sequence[int | None]]:
    calls: list[Call] = []
    places: list[int | None] = []
    shapes: dict[int, tuple[int, ...]] = {}
    for op, operation in enumerate(run.operations):
        if operation.direction != "forward":
            continue
        for tensor in operation.tensors:
            value, shape = flow.at(op, tensor.role, tensor.index), shape_of(tensor)
            if value is not None and shape is not None:
                shapes.setdefault(value.number, shape)
        if not operation.is_graph:
            calls.append(_call(flow, op, operation))
            places.append(op)
    return CallGraph(calls, shapes, whole_numbers(flow) | _cast(run, flow)), places


def _cast(run: Pass, flow: Flow) -> set[int]:
    """Weights of whole numbers that modules with weights in few bits have cast before a call."""
    found = set()
    for op, module in enumerate(modules_around(flow)):
        if module is None or not run.operations[module].rounding:
            continue
        for tensor in run.operations[op].inputs:
            value = flow.at(op, "in", tensor.index)
            if value is not None and value.writer is None and _is_whole(tensor):
                found.add(value.number)
    return found


def _is_whole(tensor: Tensor) -> bool:
    """True for a matrix of floating-point numbers that are whole ones, as far as they are read."""
    if len(shape_of(tensor) or ()) != 2 or not is_float(tensor):
        return False
    try:
        some = tensor.numpy(mmap=True).reshape(-1)[:_LOOKED_AT].astype(np.float64)
    except AitError:
        return False
    return bool((some == np.rint(some)).all() and (np.abs(some) > 1).any())


def _call(flow: Flow, op: int, operation: Operation) -> Call:
    read = [flow.at(op, "in", tensor.index) for tensor in operation.inputs]
    written = [flow.at(op, "out", tensor.index) for tensor in operation.outputs]
    kind = api_kind(operation.api_name.partition(".")[0], operation.type)
    inputs = [value.number for value in read if value is not None]
    if kind == "embedding" and len(inputs) > 1:  # whose ids come first in this form
        inputs = [inputs[1], inputs[0], *inputs[2:]]
    numbers = (
        float(value)
        for value in params_of(operation).values()
        if isinstance(value, float)
        or (isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST)
    )
    outputs = tuple(value.number for value in written if value is not None)
    return Call(kind, tuple(inputs), outputs, tuple(numbers))
