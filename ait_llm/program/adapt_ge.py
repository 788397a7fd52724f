"""A pass of the graph engine as a program.

Its calls are those of the graph before fusion, so that a fused operator is as clear as its parts;
values inside of fused operators are nobody's tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Flow
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import CONSTANTS, TensorId
from ait_llm.program.one_pass import Pass
from ait_llm.program.operator_program import OperatorProgram
from ait_llm.program.roles_ge import kind_of, numbers_of
from ait_llm.topology.ge_graph import GeOp


def program_of_graph(run: Pass) -> OperatorProgram | None:
    """A pass of kind ``ge``; None if no graph file tells what its operators are."""
    return None if run.fusion is None else OperatorProgram(run, _calls)


def _calls(run: Pass, flow: Flow) -> tuple[CallGraph, Sequence[int | None]]:
    assert run.fusion is not None
    values = _Values(run, flow, run.fusion)
    calls, places, shapes = [], [], dict(values.shapes)
    for op in run.fusion.graph.graph.ops:
        if op.type == "NetOutput" or not op.inputs:
            continue
        calls.append(values.call(op))
        places.append(run.fusion.owners.get(op.name))
    return CallGraph(calls, shapes), places


class _Values:
    """Numbers of the tensors of the graph: those of the flow where they were dumped."""

    def __init__(self, run: Pass, flow: Flow, fusion: Fusion) -> None:
        self._graph = fusion.graph
        self._numbers: dict[TensorId, int] = {}
        self._constants: dict[TensorId, float] = {}
        self._next = len(flow.values)
        self.shapes: dict[int, tuple[int, ...]] = {}
        for place, tensor, meaning in fusion.tensors():
            value = flow.at(place, tensor.role, tensor.index)
            if meaning is None or value is None:
                continue
            if fusion.graph.type_of(meaning) in CONSTANTS:
                self._note_constant(meaning, tensor)
                continue
            self._numbers.setdefault(meaning, value.number)
            shape = shape_of(tensor)
            if shape is not None:
                self.shapes.setdefault(value.number, shape)

    def _note_constant(self, meaning: TensorId, tensor: Tensor) -> None:
        shape = shape_of(tensor)
        try:
            if shape is not None and prod(shape) == 1:
                self._constants.setdefault(meaning, float(tensor.nd().reshape(-1)[0]))
        except (AitError, ValueError, TypeError):
            return  # whoever compares it says what is wrong with it

    def _number(self, tensor: TensorId) -> int:
        known = self._numbers.get(tensor)
        if known is None:
            known = self._numbers[tensor] = self._next
            self._next += 1
        return known

    def call(self, op: GeOp) -> Call:
        """An operator as a call; constants are numbers."""
        attributes: Mapping[str, object] = op.attrs
        inputs, numbers = [], []
        for tensor in op.inputs:
            if self._graph.type_of(tensor) not in CONSTANTS:
                inputs.append(self._number(tensor))
            elif tensor in self._constants:
                numbers.append(self._constants[tensor])
        outputs = tuple(self._number((op.name, index)) for index in range(len(op.outputs)))
        kind = kind_of(op.type, attributes)
        return Call(kind, tuple(inputs), outputs, (*numbers, *numbers_of(attributes)))
