"""Passes of a decoder, made in memory as captures of it would be read: any number of operations.

Values are made when they are read; their headers and, in captures of torch, their identities are
what a capture records.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import numpy as np
from memory_runs import memory_operation, run

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.model import Operation, Role, Tensor
from ait_llm.dumps.tensors import Described, Header, Identity, Phase, Source
from ait_llm.formats.elements import Array
from ait_llm.program.one_pass import Pass

WIDTH, INNER, TOKENS = 64, 160, 7
_ADD, _MUL, _SWISH = {"elewiseType": 8}, {"elewiseType": 9}, {"activationType": 4}
Weights = Mapping[str, Mapping[str, Any]]


@cache  # readers share what many tensors have alike, too
def _described(shape: tuple[int, ...]) -> Described:
    return Described(TensorDesc(DType.FLOAT32, shape))


class _Counted(Source):
    """Values that tell one tensor from all others, made when they are read."""

    __slots__ = ("_number", "_shape")

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        self._number = number
        self._shape = shape

    def header(self, tensor: Tensor) -> Header:
        return _described(self._shape)

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        size = int(np.prod(self._shape))
        found: Array = np.linspace(self._number, self._number + 1, size, dtype=np.float64)
        return found.reshape(self._shape)


class _Value:
    """What operations hand to one another."""

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        self.width = shape[-1]
        self._source = _Counted(number, shape)
        self._identity = Identity(number, 0, 0, strides)

    def tensor(self, role: Role, index: int, folder: str, *, stem: str, placed: bool) -> Tensor:
        """The value as one operation takes or gives it."""
        identity = self._identity if placed else None
        file = f"{stem or f'{role}tensor{index}'}.pth"
        # torch inputs are captured before the operation runs, those of the library behind it
        phase: Phase = "before" if placed and role == "in" else "after"
        return Tensor(role, index, file, folder, self._source, phase, stem, identity=identity)


class _Writer:
    """Writes down what ran."""

    def __init__(self) -> None:
        self._values = 0
        self.operations: list[Operation] = []

    def value(self, *shape: int) -> _Value:
        """A value that nobody has seen before."""
        self._values += 1
        return _Value(self._values, shape)


class _TorchDecoder(_Writer):
    """A decoder of torch.

    Args:
        fused: attention is one operator.
        modules: they are captured.
        operators: they are captured.
    """

    def __init__(self, *, fused: bool, modules: bool, operators: bool) -> None:
        super().__init__()
        self._fused = fused
        self._kinds = modules, operators
        self._calls: dict[str, int] = {}

    def _record(
        self, name: str, kind: str, inputs: Mapping[str, _Value], output: _Value, weights: Weights
    ) -> Operation:
        number = self._calls.get(name, 0)
        self._calls[name] = number + 1
        folder = f"dump/torch_tensors/cpu_1/0/{name}@{number}"
        sources = [
            value.tensor("in", place, folder, stem=stem, placed=True)
            for place, (stem, value) in enumerate(inputs.items())
        ]
        result = output.tensor("out", 0, folder, stem="output", placed=True)
        ids = (len(self.operations),)
        return memory_operation(
            kind, ids, sources, [result], given_name=name, call=number, weights=weights
        )

    def operator(
        self, path: str, kind: str, inputs: Sequence[_Value | str], width: int, **params: Any
    ) -> _Value:
        """An operator within a module; texts are names of weights."""
        result = self.value(1, TOKENS, width)
        if self._kinds[1]:
            stems = [f"input_{place}" for place in range(len(inputs))]
            values = {s: v for s, v in zip(stems, inputs, strict=True) if isinstance(v, _Value)}
            weights = {
                stem: {"name": name, "shape": [width] if len(inputs) > 2 else [width, WIDTH]}
                for stem, name in zip(stems, inputs, strict=True)
                if isinstance(name, str)
            }
            name = f"{path}.aten.{kind}"
            self.operations.append(self._record(name, f"aten.{kind}", values, result, weights))
        return result

    def module(self, path: str, kind: str, source: _Value, place: int, result: _Value) -> None:
        """A module that ran what has been written since a place."""
        if self._kinds[0]:
            made = self._record(path, kind, {"input_0": source}, result, {})
            self.operations.insert(place, made)

    def norm(self, path: str, source: _Value) -> _Value:
        """An RMS norm."""
        place = len(self.operations)
        value = self.operator(path, "pow.Tensor_Scalar", [source], WIDTH)
        for kind in ("mean.dim", "add.Tensor", "rsqrt.default"):
            value = self.operator(path, kind, [value], WIDTH)
        value = self.operator(path, "mul.Tensor", [source, value], WIDTH)
        value = self.operator(path, "mul.Tensor", [value], WIDTH)
        self.module(path, "RMSNorm", source, place, value)
        return value

    def linear(self, path: str, source: _Value, width: int) -> _Value:
        """A projection."""
        place = len(self.operations)
        value = self.operator(path, "view.default", [source], source.width)
        value = self.operator(path, "mm.default", [value, f"{path}.weight"], width)
        value = self.operator(path, "view.default", [value], width)
        self.module(path, "Linear", source, place, value)
        return value

    def layer(self, number: int, source: _Value) -> _Value:
        """A decoder layer."""
        path = f"root.model.layers.{number}"
        attention, mlp = f"{path}.self_attn", f"{path}.mlp"
        start = len(self.operations)
        normed = self.norm(f"{path}.input_layernorm", source)
        place = len(self.operations)
        heads = []
        for name in ("q_proj", "k_proj", "v_proj"):
            made = self.linear(f"{attention}.{name}", normed, WIDTH)
            turned = self.operator(attention, "mul.Tensor", [made], WIDTH)
            heads.append(self.operator(attention, "add.Tensor", [made, turned], WIDTH))
        if self._fused:
            kind = "_scaled_dot_product_flash_attention_for_cpu.default"
            mixed = self.operator(attention, kind, heads, WIDTH)
        else:
            mixed = self.operator(attention, "bmm.default", heads[:2], WIDTH)
            mixed = self.operator(attention, "_softmax.default", [mixed], WIDTH)
            mixed = self.operator(attention, "bmm.default", [mixed, heads[2]], WIDTH)
        attended = self.linear(f"{attention}.o_proj", mixed, WIDTH)
        self.module(attention, "LlamaAttention", normed, place, attended)
        hidden = self.operator(path, "add.Tensor", [source, attended], WIDTH)
        normed = self.norm(f"{path}.post_attention_layernorm", hidden)
        place = len(self.operations)
        gate = self.linear(f"{mlp}.gate_proj", normed, INNER)
        up = self.linear(f"{mlp}.up_proj", normed, INNER)
        inner = len(self.operations)
        active = self.operator(f"{mlp}.act_fn", "silu.default", [gate], INNER)
        self.module(f"{mlp}.act_fn", "SiLU", gate, inner, active)
        product = self.operator(mlp, "mul.Tensor", [active, up], INNER)
        made = self.linear(f"{mlp}.down_proj", product, WIDTH)
        self.module(mlp, "LlamaMLP", normed, place, made)
        result = self.operator(path, "add.Tensor", [hidden, made], WIDTH)
        self.module(path, "LlamaDecoderLayer", source, start, result)
        return result


class _AtbDecoder(_Writer):
    """A decoder of the acceleration library: a graph for each layer."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: tuple[int, ...] = ()

    def _record(
        self,
        kind: str,
        ids: tuple[int, ...],
        inputs: Sequence[_Value],
        output: _Value,
        params: Mapping[str, Any],
    ) -> Operation:
        name = f"{kind}_{'_'.join(map(str, ids))}"
        folder = f"dump/tensors/0_1/0/{name}"
        sources = [
            value.tensor("in", place, folder, stem="", placed=False)
            for place, value in enumerate(inputs)
        ]
        result = output.tensor("out", 0, folder, stem="", placed=False)
        is_graph = len(ids) == 1
        return memory_operation(
            kind, ids, sources, [result], given_name=name, is_graph=is_graph, params=params
        )

    def operation(
        self, kind: str, inputs: Sequence[_Value], width: int, params: Mapping[str, Any]
    ) -> _Value:
        """An operation within the layer."""
        result = self.value(TOKENS, width)
        member = (*self._ids[:1], self._ids[1])
        self._ids = (member[0], member[1] + 1)
        self.operations.append(self._record(f"{kind}Operation", member, inputs, result, params))
        return result

    def linear(self, source: _Value, width: int) -> _Value:
        """A projection with its weight."""
        weight = self.value(width, source.width)
        return self.operation("Linear", [source, weight], width, {"transposeB": True})

    def norm(self, source: _Value) -> _Value:
        """An RMS norm with its weight."""
        return self.operation("RmsNorm", [source, self.value(WIDTH)], WIDTH, {})

    def layer(self, number: int, source: _Value) -> _Value:
        """A decoder layer."""
        self._ids = (number, 0)
        place = len(self.operations)
        normed = self.norm(source)
        heads = [self.linear(normed, WIDTH) for _ in range(3)]
        mask = self.value(TOKENS, TOKENS)
        mixed = self.operation("SelfAttention", [*heads, mask], WIDTH, {"headNum": 4})
        hidden = self.operation("Elewise", [source, self.linear(mixed, WIDTH)], WIDTH, _ADD)
        normed = self.norm(hidden)
        gate, up = self.linear(normed, INNER), self.linear(normed, INNER)
        active = self.operation("Activation", [gate], INNER, _SWISH)
        product = self.operation("Elewise", [active, up], INNER, _MUL)
        made = self.linear(product, WIDTH)
        result = self.operation("Elewise", [hidden, made], WIDTH, _ADD)
        graph = self._record("Prefill_layer", (number,), [source], result, {})
        self.operations.insert(place, graph)
        return result


def _run(kind: str, decoder: _TorchDecoder | _AtbDecoder, layers: int, *shape: int) -> Pass:
    value = decoder.value(*shape, WIDTH)
    for number in range(layers):
        value = decoder.layer(number, value)
    return run(kind, decoder.operations)


def _torch(layers: int, **parts: bool) -> Pass:
    return _run("torch", _TorchDecoder(**parts), layers, 1, TOKENS)


def _modules_and_operators(layers: int) -> tuple[Pass, Pass]:
    return (
        _torch(layers, fused=False, modules=True, operators=True),
        _torch(layers, fused=True, modules=True, operators=True),
    )


def _operators(layers: int) -> tuple[Pass, Pass]:
    return (
        _torch(layers, fused=False, modules=False, operators=True),
        _torch(layers, fused=True, modules=False, operators=True),
    )


def _modules_and_none(layers: int) -> tuple[Pass, Pass]:
    return (
        _torch(layers, fused=False, modules=True, operators=True),
        _torch(layers, fused=False, modules=False, operators=True),
    )


def _library(layers: int) -> tuple[Pass, Pass]:
    return (
        _torch(layers, fused=False, modules=True, operators=False),
        _run("atb", _AtbDecoder(), layers, TOKENS),
    )


PAIRS = {
    "modules and operators of torch": _modules_and_operators,
    "operators of torch alone": _operators,
    "operators with modules against operators alone": _modules_and_none,
    "modules of torch against operations of ATB": _library,
}
"""Makes the two passes of so many layers, of which one has another attention."""


def passes(pair: str, operations: int) -> tuple[Pass, Pass]:
    """Two passes of equally many layers, of which the longer one has about so many operations."""
    make = PAIRS[pair]
    of_two = max(len(side.operations) for side in make(2))
    return make(max(1, round(operations / (of_two / 2))))
