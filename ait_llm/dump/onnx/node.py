"""A node of an ONNX graph, and what it computes in the words of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Named:
    """An argument that is a value of the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an ONNX graph.

    Attributes:
        kind: ``MatMul``, or ``com.microsoft.FastGelu`` of another domain than that of ONNX.
        inputs, outputs: names of values; empty for those that are left out.
        attributes: by name.
        constants: those of its inputs that are known before the graph runs, by name.
        ranks: dimensions of its inputs as far as known, by name.
        floating: names of the inputs that are known to hold no integers.
        sizes: of its inputs and results by name, -1 for one at most that is not known.
    """

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    floating: frozenset[str] = frozenset()
    sizes: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The attributes that are numbers, text, or lists of numbers."""
        return {
            name: value
            for name, value in self.attributes.items()
            if isinstance(value, (int, float, str))
            or (isinstance(value, list) and all(isinstance(each, (int, float)) for each in value))
        }

    def has(self, place: int) -> bool:
        """True if the node has this input."""
        return place < len(self.inputs) and bool(self.inputs[place])

    def argument(self, place: int) -> Any:
        """An input: a number where it is a constant of rank 0."""
        name = self.inputs[place]
        constant = self.constants.get(name)
        return constant.item() if constant is not None and constant.ndim == 0 else Named(name)

    def numbers(self, place: int, attribute: str = "") -> list[int] | None:
        """Whole numbers of a constant input, of the attribute that it once was; None if neither."""
        if self.has(place):
            constant = self.constants.get(self.inputs[place])
            return None if constant is None else [int(each) for each in constant.reshape(-1)]
        given = self.attributes.get(attribute)
        return None if given is None else [int(each) for each in given]


@dataclass(frozen=True, slots=True)
class Operator:
    """What a node computes.

    Attributes:
        target: ``aten.mul.Tensor``, or ``onnx.ScatterND``.
        args: values of the graph as :class:`Named`, numbers and lists of both.
        options: arguments that have names.
    """

    target: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
