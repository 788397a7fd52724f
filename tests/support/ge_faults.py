"""Faults in dumps of the graph engine that spread as they would on a device.

A recorded dump holds the values of every operator that ran. From the faulty operator on, the graph
is evaluated operator by operator with NumPy, through fused groups and from one execution to the
next, and what changed is written into the files again. Headers stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.dumps import open_dump
from ait_llm.dumps.ge import GeDump
from ait_llm.program.compiled import Execution, executions_of
from ait_llm.program.ge.decoding import Decoded, decode
from ait_llm.program.ge.graph import INPUTS, TensorId, UnfusedGraph, graphs_of
from ait_llm.topology.ge_graph import GeOp

Array = np.ndarray[Any, np.dtype[Any]]
Fault = Callable[[Array], Array]
Values = dict[TensorId, Array]

_COMPUTED = frozenset({"Mul", "Muls", "Swish", "Cast", "Reshape", "Unsqueeze", "Identity"})
_CASTS = {0: np.float32, 1: np.float16, 3: np.int32, 9: np.int64}  # ge::DataType


def scaled(array: Array) -> Array:
    """Eight per cent too large."""
    return (array.astype(np.float32) * 1.08).astype(array.dtype)


def one_element(array: Array) -> Array:
    """One element is off by ten times the largest."""
    wrong = array.copy()
    wrong.reshape(-1)[array.size // 2] += np.abs(array).max() * 10
    return wrong


def swapped_rows(array: Array) -> Array:
    """The first two of the longest axis' rows are swapped."""
    wrong = array.copy()
    axis = max(range(array.ndim), key=lambda each: array.shape[each])
    first, second = ([slice(None)] * array.ndim for _ in range(2))
    first[axis], second[axis] = 0, 1
    wrong[tuple(first)], wrong[tuple(second)] = array[tuple(second)], array[tuple(first)]
    return wrong


@dataclass
class _Step:
    execution: Execution
    graph: UnfusedGraph
    decoded: list[Decoded]
    values: Values = field(default_factory=dict)
    changed: set[TensorId] = field(default_factory=set)


class FaultyDump:
    """A copy of a recorded dump.

    Args:
        root: its folder, whose files are changed.
    """

    def __init__(self, root: Path) -> None:
        dump = open_dump(root)
        assert isinstance(dump, GeDump)
        graphs, problems = graphs_of(dump.graph_files)
        assert not problems
        self._steps = []
        for execution in executions_of(dump, dump.processes[0]):
            [graph] = [each for each in graphs if each.number == execution.number]
            step = _Step(execution, graph, decode(execution.operations, graph))
            step.values = _dumped(step)
            self._steps.append(step)
        self._links = [_links(*pair) for pair in zip(self._steps, self._steps[1:], strict=False)]

    @property
    def steps(self) -> int:
        """How many executions it has."""
        return len(self._steps)

    def inject(self, token: int, operator: str, fault: Fault, output: int = 0) -> None:
        """Let an operator of the graph go wrong in one execution, and all that follows from it.

        Args:
            token: which execution of the process.
            operator: name in the graph before fusion.
            fault: what becomes of its result.
            output: which result.
        """
        for place in range(token, len(self._steps)):
            step = self._steps[place]
            _spread(step, operator if place == token else "", fault, output)
            _write(step)
            if place + 1 < len(self._steps):
                after = self._steps[place + 1]
                for before, data in self._links[place].items():
                    if before in step.changed:
                        after.values[data] = step.values[before]
                        after.changed.add(data)


def _dumped(step: _Step) -> Values:
    values: Values = {}
    for operation, decoded in zip(step.execution.operations, step.decoded, strict=True):
        for tensor in operation.inputs:
            slot = decoded.inputs[tensor.index]
            assert slot is not None
            values.setdefault(slot.tensor, tensor.nd())
        for tensor in operation.outputs:
            meaning = decoded.outputs[tensor.index]
            assert meaning is not None
            values[meaning] = tensor.nd()
    return values


def _links(first: _Step, second: _Step) -> Mapping[TensorId, TensorId]:
    """Outputs of one execution that are inputs of the next: the caches."""
    [output] = [op for op in first.graph.graph.ops if op.type == "NetOutput"]
    data = {
        tensor: array.tobytes()
        for tensor, array in second.values.items()
        if second.graph.type_of(tensor) in INPUTS and array.dtype.kind == "f"
    }
    return {
        before: after
        for before in output.inputs
        for after, content in data.items()
        if before in first.values and first.values[before].tobytes() == content
    }


def _spread(step: _Step, operator: str, fault: Fault, output: int) -> None:
    values = step.values
    for op in step.graph.graph.ops:
        if op.name != operator and not step.changed.intersection(op.inputs):
            continue
        if op.type in ("NetOutput", "Shape", "Pack", "Gather"):
            continue
        results = _evaluate(op, _inputs(step, op), values)
        if op.name == operator:
            results[output] = fault(results[output])
        for index, result in enumerate(results):
            known = values.get((op.name, index))
            if known is not None:
                assert known.size == result.size, op.name
                result = result.reshape(known.shape).astype(known.dtype)
            values[op.name, index] = result
            step.changed.add((op.name, index))


def _inputs(step: _Step, op: GeOp) -> list[Array]:
    """Values that an operator reads; those inside of a fused group are computed first."""
    found = []
    for tensor in op.inputs:
        producer = step.graph.op(tensor[0])
        if tensor not in step.values and producer is not None and producer.type in _COMPUTED:
            results = _evaluate(producer, _inputs(step, producer), step.values)
            step.values.update({(producer.name, k): each for k, each in enumerate(results)})
        if tensor in step.values:
            found.append(step.values[tensor])
    return found


def _write(step: _Step) -> None:
    for operation, decoded in zip(step.execution.operations, step.decoded, strict=True):
        for tensor in operation.tensors:
            slot = decoded.inputs[tensor.index] if tensor.role == "in" else None
            meaning = slot.tensor if slot is not None else decoded.outputs[tensor.index]
            if meaning not in step.changed:
                continue
            payload = tensor.payload()
            assert payload is not None
            values = step.values[meaning].reshape(tensor.shape)
            data = np.ascontiguousarray(_stored(values, tensor)).tobytes()
            assert len(data) == payload.length
            with tensor.path.open("r+b") as file:
                file.seek(payload.offset)
                file.write(data)


def _stored(array: Array, tensor: Any) -> Array:
    if tensor.format != 29:
        return array
    *batch, columns, rows, inner, c0 = tensor.numpy().shape  # FRACTAL_NZ
    padded = np.zeros((*batch, rows * inner, columns * c0), array.dtype)
    padded[..., : array.shape[-2], : array.shape[-1]] = array
    return np.moveaxis(padded.reshape(*batch, rows, inner, columns, c0), -2, -4)


def _evaluate(op: GeOp, inputs: list[Array], values: Values) -> list[Array]:
    """Results of one operator; floats are computed in float32 and rounded to the input's type."""
    first = inputs[0]
    kind = first.dtype
    wide = [each.astype(np.float32) if each.dtype == np.float16 else each for each in inputs]
    if op.type == "SplitV":
        axis = int(inputs[2].reshape(-1)[0])
        return np.split(first, np.cumsum(inputs[1].reshape(-1))[:-1], axis)
    if op.type == "TopKV2":
        order = np.argsort(-first, axis=-1, kind="stable")[..., : int(inputs[1].reshape(-1)[0])]
        return [np.take_along_axis(first, order, -1), order.astype(np.int32)]
    if op.type == "Cast":
        target = op.attrs["dst_type"]
        assert isinstance(target, int)
        return [first.astype(_CASTS[target])]
    if op.type in ("Reshape", "Unsqueeze", "Identity"):
        return [first]
    if op.type == "Transpose":
        return [first.transpose(inputs[1].reshape(-1))]
    if op.type == "BroadcastTo":
        return [np.broadcast_to(first, values[op.name, 0].shape)]
    if op.type == "ConcatV2":
        return [np.concatenate(inputs[:-1], int(inputs[-1].reshape(-1)[0]))]
    if op.type == "GatherV2":
        return [np.take(first, inputs[1], int(inputs[2].reshape(-1)[0]))]
    return [_arithmetic(op, wide).astype(kind)]


def _arithmetic(op: GeOp, inputs: list[Array]) -> Array:
    first = inputs[0]
    if op.type in ("MatMul", "MatMulV2", "BatchMatMul"):
        product = first @ inputs[1]
        return product + inputs[2] if len(inputs) > 2 else product
    if op.type == "Muls":
        factor = op.attrs["value"]
        assert isinstance(factor, float)
        return first * np.float32(factor)
    if op.type == "SoftmaxV2":
        powers = np.exp(first - first.max(-1, keepdims=True))
        result: Array = powers / powers.sum(-1, keepdims=True)
        return result
    if op.type == "ReduceMean":
        return np.asarray(first.mean(tuple(inputs[1].reshape(-1)), keepdims=True))
    simple: dict[str, Callable[..., Array]] = {
        "Mul": np.multiply,
        "Add": np.add,
        "Pow": np.power,
        "Neg": np.negative,
        "Rsqrt": lambda x: 1 / np.sqrt(x),
        "Swish": lambda x: x / (1 + np.exp(-x)),
    }
    return simple[op.type](*inputs)
