"""Products with weights of a few bits (``MatMulNBits``), told as products with real numbers.

A weight ``[N, K]`` is kept in blocks along K, each with a scale and a zero point
(``docs/ContribOperators.md`` of ONNX Runtime).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ait_llm.dump.onnx.node import Array, Named, Node

if TYPE_CHECKING:
    import onnx

KIND = "MatMulNBits"
_RUNTIME, _OURS = "com.microsoft", "ait"
_DATA, _SCALES, _ZEROS, _GROUPS, _BIAS = range(1, 6)  # places of its inputs
_TO_INT8 = 4  # ``accuracy_level`` that has what is multiplied rounded to int8, block by block


@dataclass(frozen=True, slots=True)
class FewBits:
    """A weight of a few bits.

    Attributes:
        data, scales: names of what is stored; ``zeros`` and ``groups`` are empty if there are none.
        rows, columns: of the weight.
        bits: of a number; 2, 4 or 8.
        block: numbers that share a scale.
    """

    data: str
    scales: str
    zeros: str
    groups: str
    rows: int
    columns: int
    bits: int
    block: int

    @property
    def name(self) -> str:
        """What the real numbers are called."""
        return f"{self.data}.ait_real"

    @property
    def words(self) -> str:
        """How it is stored, for people."""
        return f"int{self.bits} in blocks of {self.block}"

    def real(self, value: Callable[[str], Array]) -> tuple[Array, float]:
        """The numbers that it stands for, and what rounding to them has cost.

        Args:
            value: of a constant of the graph.

        Returns:
            ``[N, K]`` in the type of the scales; the relative Euclidean distance of a weight that
            was rounded to the nearest of these numbers.
        """
        scales = value(self.scales)
        blocks = -(-self.columns // self.block)
        data = unpacked(value(self.data).reshape(self.rows, -1), self.bits)
        data = data[:, : self.columns].astype(np.float32)
        scale = scales.astype(np.float32).reshape(self.rows, blocks)
        zero = self._zeros(value, blocks)
        if self.groups:
            of_column = value(self.groups).reshape(-1)[: self.columns]
        else:
            of_column = np.arange(self.columns) // self.block
        step = scale[:, of_column]
        real = (data - zero[:, of_column]) * step
        power = float(np.mean(np.square(real, dtype=np.float64)))
        steps = float(np.mean(np.square(step, dtype=np.float64)))
        return real.astype(scales.dtype), math.sqrt(steps / 12 / power) if power else 0.0

    def _zeros(self, value: Callable[[str], Array], blocks: int) -> Array:
        if not self.zeros:
            return np.full((self.rows, blocks), 1 << (self.bits - 1), np.float32)
        zeros = value(self.zeros)
        if zeros.dtype == np.uint8:  # packed like the weight, each row filled up to a byte
            zeros = unpacked(zeros.reshape(self.rows, -1), self.bits)
        return zeros.reshape(self.rows, -1)[:, :blocks].astype(np.float32)


def unpacked(data: Array, bits: int) -> Array:
    """Small integers out of bytes, along the last axis, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    small = (data[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    flat: Array = small.reshape(*data.shape[:-1], -1)
    return flat


def weight_of(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> FewBits | None:
    """The weight of a product of a few bits; None for other nodes, and if the graph computes it.

    Args:
        node: of the graph.
        constants: what is known before the graph runs.
    """
    import onnx

    if (node.domain, node.op_type) != (_RUNTIME, KIND):
        return None
    given: dict[str, Any] = {
        each.name: onnx.helper.get_attribute_value(each) for each in node.attribute
    }
    inputs = [*node.input, "", "", "", "", ""]
    stored = inputs[_DATA : _GROUPS + 1]
    rows, columns, block = (int(given.get(name, 0)) for name in ("N", "K", "block_size"))
    bits = int(given.get("bits", 4))
    if bits not in (2, 4, 8) or min(rows, columns, block) < 1 or not all(stored[:2]):
        return None
    if any(name and name not in constants for name in stored):
        return None
    return FewBits(stored[0], stored[1], stored[2], stored[3], rows, columns, bits, block)


def with_real_weight(node: onnx.NodeProto, weight: FewBits) -> onnx.NodeProto:
    """The node as a product with real numbers."""
    import onnx

    bias = node.input[_BIAS : _BIAS + 1]
    told = onnx.helper.make_node(
        KIND, [node.input[0], weight.name, *bias], list(node.output), name=node.name, domain=_OURS
    )
    told.attribute.extend(each for each in node.attribute if each.name == "accuracy_level")
    told.metadata_props.extend(node.metadata_props)
    return told


def product(node: Node) -> tuple[Any, ...]:
    """What computes it: one that rounds what it is given is not the product of PyTorch."""
    rounds = node.attributes.get("accuracy_level", 0) == _TO_INT8
    target = "onnx.linear.default" if rounds else "aten.linear.default"
    bias = [Named(node.inputs[2])] if node.has(2) else []
    return target, node.argument(0), Named(node.inputs[1]), *bias
