"""Tensors of quantised operations against those of float ones.

Formulas are those of the ATB operators: a quantised tensor stands for ``(q - offset) * scale``.
``ElewiseOperation`` QUANT multiplies by ``inputScale``; every other quantisation divides by its
scale. A quantised product is scaled by ``deqScale`` per output channel, which is the scale of its
input times that of its weight.
"""

from __future__ import annotations

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.match.value_views import Dequantise
from ait_llm.match.views import Part, View
from ait_llm.program.describe import dtype_of
from ait_llm.program.program import Program

_INTEGERS = frozenset({DType.INT8, DType.INT4, DType.INT32})
_QUANT, _QUANT_PER_CHANNEL, _DYNAMIC_QUANT = 6, 17, 19  # ElewiseOperation elewiseType
_NORMS = frozenset({"RmsNormOperation", "LayerNormOperation", "RmsNormWithStrideOperation"})
_LINEARS = frozenset({"LinearOperation", "LinearActivationOperation"})
_MAX_SCALES = 1 << 22
# Types that compute the same on other element types (quantised: float).
SAME_WORK = {
    "LinearQuantOperation": "LinearOperation",
    "LinearSparseOperation": "LinearOperation",
    "LinearActivationQuantOperation": "LinearActivationOperation",
    "LinearDequantOnly": "LinearNoQuant",
    "LinearRowParallelNoAdd": "LinearRowParallelAndAdd",
}
Roles = dict[str, Tensor]


def scales_of(operation: Operation, tensor: Tensor) -> list[Tensor]:
    """Inputs of an operation that say what its quantised tensor stands for."""
    inputs = roles(operation)
    if tensor.role == "in":
        return [inputs[role] for role in ("deqScale", "perTokenScale") if role in inputs]
    if operation.type in _NORMS:
        places = sorted(operation.inputs, key=lambda each: each.index)
        return places[-2:] if len(places) > 3 else []
    return []


def mixed(golden: Operation, mine: Operation) -> bool:
    """True if an input is integers on one side and real numbers on the other."""
    return any(
        bool(is_integer(one)) != bool(is_integer(other))
        for one, other in zip(golden.inputs, mine.inputs, strict=False)
    )


def roles(operation: Operation) -> Roles:
    """Inputs by what they are: ``x``, ``weight``, ``bias``, ``deqScale``; else ``input 3``."""
    inputs = list(operation.inputs)
    if SAME_WORK.get(operation.type, operation.type) not in _LINEARS or len(inputs) < 2:
        return {f"input {tensor.index}": tensor for tensor in inputs}
    found = {"x": inputs[0], "weight": inputs[1]}
    rest = inputs[2:]
    quantised = dtype_of(inputs[1]) in (DType.INT8, DType.INT4)
    names = ["bias", "deqScale", "perTokenScale"] if quantised else ["bias"]
    has_bias = _parameter(operation, "hasBias")
    if (quantised and has_bias is False) or (quantised and has_bias is None and len(rest) == 1):
        names = names[1:]
    if not quantised and _parameter(operation, "enAccum"):
        names = ["accumulated"]
    for place, tensor in enumerate(rest):
        found[names[place] if place < len(names) else f"input {tensor.index}"] = tensor
    return found


class Scales:
    """Scales of the quantised tensors of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def view(self, op: int, tensor: Tensor) -> Dequantise | None:
        """How to turn a quantised tensor of an operation into real numbers; None if unknown."""
        operation = self._program.operations[op]
        try:
            if tensor.role == "out":
                return _of_quantisation(operation, tensor)
            inputs = roles(operation)
            role = next((name for name, one in inputs.items() if one == tensor), "")
            if "deqScale" not in inputs:
                return self._of_input(op, tensor)
            if role == "x":
                return self._of_activation(op, inputs)
            if role == "weight":
                return self._of_weight(op, inputs)
            if role == "bias":
                return self._of_bias(op, inputs)
        except AitError:
            pass  # a scale that cannot be read is not there
        return None

    def _of_input(self, op: int, tensor: Tensor) -> Dequantise | None:
        """From the operation that quantised the input."""
        value = self._program.value(op, tensor)
        for use in value.writes if value is not None else ():
            if use.tensor.dtype is tensor.dtype:
                found = _of_quantisation(self._program.operations[use.op], use.tensor)
                if found is not None:
                    return found
        return None

    def _of_activation(self, op: int, inputs: Roles) -> Dequantise | None:
        if "perTokenScale" in inputs:
            return Dequantise(_numbers(inputs["perTokenScale"]), axis=-2)
        return self._of_input(op, inputs["x"])

    def _of_weight(self, op: int, inputs: Roles) -> Dequantise | None:
        scale = _scaled(self._program.operations[op], inputs)
        if "perTokenScale" not in inputs:
            of_x = self._of_input(op, inputs["x"])
            if of_x is None or len(of_x.scale) != 1:
                return None
            scale = tuple(value / of_x.scale[0] for value in scale)
        transposed = _parameter(self._program.operations[op], "transposeB") is not False
        return Dequantise(scale, axis=-2 if transposed else -1)

    def _of_bias(self, op: int, inputs: Roles) -> Dequantise | None:
        """The bias of a quantised product; one that also corrects the input's offset is not it."""
        if "perTokenScale" not in inputs:
            of_x = self._of_input(op, inputs["x"])
            if of_x is None or any(of_x.offset):
                return None
        return Dequantise(_scaled(self._program.operations[op], inputs))


def _of_quantisation(operation: Operation, output: Tensor) -> Dequantise | None:
    """What an operation that quantises did to the values of an output."""
    inputs = {tensor.index: tensor for tensor in operation.inputs}
    if operation.type == "ElewiseOperation":
        kind = _parameter(operation, "elewiseType")
        if kind == _QUANT:
            given = _parameter(operation, "quantParam")
            param = given if isinstance(given, dict) else operation.params
            scale, offset = float(param.get("inputScale", 1)), float(param.get("inputOffset", 0))
            return Dequantise((1 / scale,), (offset,)) if scale else None
        if kind == _QUANT_PER_CHANNEL and 1 in inputs:
            offsets = _numbers(inputs[2]) if 2 in inputs else ()
            return Dequantise(_numbers(inputs[1]), offsets or (0.0,))
        if kind == _DYNAMIC_QUANT:
            return _by_row(operation)
        return None
    if operation.type not in _NORMS or dtype_of(output) is not DType.INT8:
        return None
    if any(dtype_of(other) is DType.FLOAT32 and other.index for other in operation.outputs):
        return _by_row(operation)
    places = sorted(inputs)
    if len(places) < 4:
        return None
    return Dequantise(_numbers(inputs[places[-2]]), _numbers(inputs[places[-1]]))


def _by_row(operation: Operation) -> Dequantise | None:
    """Scales, and offsets if there are any, that the operation computed for each row."""
    outputs = {tensor.index: tensor for tensor in operation.outputs}
    if 1 not in outputs or _parameter(operation, "layerType") not in (None, 1):
        return None
    offsets = _numbers(outputs[2]) if 2 in outputs else (0.0,)
    return Dequantise(_numbers(outputs[1]), offsets, axis=-2)


def _scaled(operation: Operation, inputs: Roles) -> tuple[float, ...]:
    """``deqScale``; for float16 results its float32 bits lie in the low half of 64-bit integers."""
    tensor = inputs["deqScale"]
    if dtype_of(tensor) in (DType.INT64, DType.UINT64):
        bits = tensor.numpy().reshape(-1).astype(np.uint64) & np.uint64(0xFFFFFFFF)
        if bits.size > _MAX_SCALES:
            raise AitError(f"{tensor.path}: {bits.size} values are no scale per channel")
        return tuple(bits.astype(np.uint32).view(np.float32).astype(np.float64).tolist())
    return _numbers(tensor)


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    array = tensor.nd()
    if array.size > _MAX_SCALES:
        raise AitError(f"{tensor.path}: {array.size} values are no scale per channel")
    return tuple(array.astype(np.float64).reshape(-1).tolist())


def with_scale(views: tuple[View, ...], scale: Dequantise) -> tuple[View, ...]:
    """The views with a scale: it belongs to the tensor as stored, but not to padding cut off."""
    cut = tuple(each for each in views if isinstance(each, Part))
    return (*cut, scale, *(each for each in views if not isinstance(each, Part)))


def is_integer(tensor: Tensor) -> bool | None:
    """True for what may stand for real numbers; None if the file is damaged."""
    dtype = dtype_of(tensor)
    return None if dtype is None else dtype in _INTEGERS


def _parameter(operation: Operation, name: str) -> object:
    try:
        return operation.params.get(name)
    except AitError:
        return None
