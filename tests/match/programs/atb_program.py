"""Runs operations of the embedded library one by one and writes the dump that a capture leaves.

Real operators with real parameters, in graphs as inference engines build them, without a process of
their own: many small models fit into one test run. What the library does not compute (products of
experts) is written with values of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.core import DType, TensorDesc
from ait_llm.formats import write_tensor
from ait_llm.formats.torch_bridge import from_torch
from ait_llm.hostatb.spec import operator_specs

_PROCESS = "0_4242"


@dataclass
class _Graph:
    name: str
    ids: tuple[int, ...]
    path: str
    members: int = 0
    reads: list[Tensor] = field(default_factory=list)
    made: set[int] = field(default_factory=set)
    outputs: list[Tensor] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)


class AtbProgram:
    """A program whose operations are dumped as they run.

    Args:
        root: folder of the dump.
        topology: also report the graph of each top-level operation, with the names of its tensors.
        inputs_before: capture inputs before the operation; else after it, as by default.
    """

    def __init__(self, root: Path, *, topology: bool = True, inputs_before: bool = True) -> None:
        self._tensors = root / "ait_dump" / "tensors" / _PROCESS / "0"
        self._graphs = root / "ait_dump" / "layer" / "4242"
        self._topology = topology
        self._before = "before" if inputs_before else "after"
        self._count = 0
        self._open: list[_Graph] = []
        self._alive: list[Tensor] = []  # ids of tensors stay unique while they live
        self._same: dict[int, int] = {}

    @contextmanager
    def graph(self, name: str) -> Iterator[list[Tensor]]:
        """A graph operation; the caller puts its outputs into the list."""
        ids, path = self._next(name)
        graph = _Graph(name, ids, path)
        self._open.append(graph)
        yield graph.outputs
        self._open.pop()
        self._write(path, graph.reads, graph.outputs, ((), ()))
        self._note(name, ids, graph.reads, graph.outputs, {"nodes": graph.nodes})

    def run(self, param: Any, *inputs: Tensor) -> Any:
        """Execute an operation of the library; one output alone comes without a list."""
        operation = torch_atb.Operation(param)
        outputs = operation.forward(list(inputs))
        names = operator_specs.get(operation.name).tensor_names(param.entries(printed_only=False))
        text = param.to_json()
        self._leaf(operation.name, None if text == "null" else text, list(inputs), outputs, names)
        return outputs[0] if len(outputs) == 1 else outputs

    def plugin(
        self, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **params: Any
    ) -> None:
        """Write an operation that was computed elsewhere."""
        self._leaf(kind, json.dumps(params), list(inputs), list(outputs), ((), ()))

    def view(self, tensor: Tensor, *shape: int) -> Tensor:
        """The same tensor in another shape; graphs reshape without an operation."""
        seen = tensor.reshape(*shape)
        self._alive += [tensor, seen]
        self._same[id(seen)] = self._key(tensor)
        return seen

    def _key(self, tensor: Tensor) -> int:
        return self._same.get(id(tensor), id(tensor))

    def _leaf(
        self,
        kind: str,
        params: str | None,
        inputs: list[Tensor],
        outputs: list[Tensor],
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        ids, path = self._next(kind)
        self._write(path, inputs, outputs, names)
        if params is not None:
            (self._tensors / path / "op_param.json").write_text(params)
        self._note(kind, ids, inputs, outputs, {"param": json.loads(params or "null")})

    def _next(self, name: str) -> tuple[tuple[int, ...], str]:
        if not self._open:
            self._count += 1
            return (self._count - 1,), f"{self._count - 1}_{name}"
        graph = self._open[-1]
        graph.members += 1
        number = graph.members - 1
        return (*graph.ids, number), f"{graph.path}/{number}_{name}"

    def _write(
        self,
        path: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        for role, phase, tensors, labels in (
            ("in", self._before, inputs, names[0]),
            ("out", "after", outputs, names[1]),
        ):
            for index, tensor in enumerate(tensors):
                label = f"_{labels[index]}" if index < len(labels) else ""
                file = self._tensors / path / phase / f"{role}tensor{index}{label}.bin"
                file.parent.mkdir(parents=True, exist_ok=True)
                array, dtype = from_torch(tensor.detach().contiguous())[:2]
                write_tensor(file, array, TensorDesc(DType(dtype), tuple(tensor.shape)))
        self._alive += [*inputs, *outputs]
        for graph in self._open:
            known = {self._key(tensor) for tensor in graph.reads} | graph.made
            for tensor in inputs:
                if self._key(tensor) not in known:
                    graph.reads.append(tensor)
                    known.add(self._key(tensor))
            graph.made.update(self._key(tensor) for tensor in outputs)

    def _note(
        self,
        kind: str,
        ids: tuple[int, ...],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        more: dict[str, Any],
    ) -> None:
        name = "_".join([kind, *map(str, ids)])
        node = {
            "opName": name,
            "opType": kind,
            "inTensors": [f"t{self._key(tensor)}" for tensor in inputs],
            "outTensors": [f"t{self._key(tensor)}" for tensor in outputs],
            **more,
        }
        if self._open:
            self._open[-1].nodes.append(node)
        elif self._topology:
            self._graphs.mkdir(parents=True, exist_ok=True)
            (self._graphs / f"{name}.json").write_text(json.dumps(node))


def float16(tensor: Tensor) -> Tensor:
    """A weight as the library takes it."""
    return tensor.detach().to(torch.float16).contiguous()
