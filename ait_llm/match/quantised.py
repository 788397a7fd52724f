"""Tensors of quantised operations against those of float ones.

Formulas are those of the ATB operators: a quantised tensor stands for ``(q - offset) * scale``.
``ElewiseOperation`` QUANT multiplies by ``inputScale``; every other quantisation divides by its
scale. A quantised product is scaled by ``deqScale`` per output channel, which is the scale of its
input times that of its weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.match.model import Match, SideName, Source, Unmatched
from ait_llm.match.op_tree import SAME_WORK
from ait_llm.match.operators import Finding, Placed, match_by_index, match_role
from ait_llm.match.views import Dequantise, Part, View

_INTEGERS = frozenset({DType.INT8, DType.INT4, DType.INT32})
_QUANT, _QUANT_PER_CHANNEL, _DYNAMIC_QUANT = 6, 17, 19  # ElewiseOperation elewiseType
_NORMS = frozenset({"RmsNormOperation", "LayerNormOperation", "RmsNormWithStrideOperation"})
_LINEARS = frozenset({"LinearOperation", "LinearActivationOperation"})
_MAX_SCALES = 1 << 22
_LOOK_BACK = 64  # operations between a quantisation and its reader
Roles = dict[str, Tensor]


class Quantised:
    """Pairs the tensors of two operations, at least one of which may be quantised.

    Args:
        golden, mine: all operations of both runs, among which scales are looked for.
    """

    def __init__(self, golden: Sequence[Placed], mine: Sequence[Placed]) -> None:
        self._scales = {"golden": _Scales(golden), "mine": _Scales(mine)}

    def match(
        self, golden: Placed, mine: Placed, finding: Finding, rivals: tuple[str, ...] = ()
    ) -> Iterator[Match | Unmatched]:
        """Inputs of the same role and outputs of the same position."""
        if golden.operation.is_graph or mine.operation.is_graph:
            pairs = self._graph(golden, mine, finding)
        else:
            pairs = self._leaf(golden, mine, finding)
        for found in pairs:
            if isinstance(found, Match):
                yield from self._real(found, golden, mine, rivals)
            else:
                yield found

    def _graph(self, golden: Placed, mine: Placed, finding: Finding) -> Iterator[Match | Unmatched]:
        """Graphs that take other inputs have no common positions; members say what they are."""
        first, second = golden.operation, mine.operation
        if len(first.inputs) == len(second.inputs):
            yield from match_by_index(golden, mine, finding)
            return
        reason = "the two graphs take different inputs, see their members"
        for tensor in first.inputs:
            yield golden.unmatched("golden", tensor, reason)
        for tensor in second.inputs:
            yield mine.unmatched("mine", tensor, reason)
        yield from match_role("out", golden, mine, finding)

    def _leaf(self, golden: Placed, mine: Placed, finding: Finding) -> Iterator[Match | Unmatched]:
        first, second = roles(golden.operation), roles(mine.operation)
        for role in dict.fromkeys([*first, *second]):
            one, other = first.get(role), second.get(role)
            if one is not None and other is not None:
                yield from finding.match((golden, one), (mine, other))
            elif one is not None:
                reason = f"my {mine.operation.name} has no {role}"
                yield golden.unmatched("golden", one, reason)
            elif other is not None:
                reason = f"the golden {golden.operation.name} has no {role}"
                yield mine.unmatched("mine", other, reason)
        yield from match_role("out", golden, mine, finding)

    def _real(
        self, found: Match, golden: Placed, mine: Placed, rivals: tuple[str, ...]
    ) -> Iterator[Match | Unmatched]:
        """The match with integers as the real numbers they stand for."""
        found = replace(found, alternatives=rivals)
        dtypes = found.golden.record.dtype, found.mine.record.dtype
        if None in dtypes or (dtypes[0] in _INTEGERS) == (dtypes[1] in _INTEGERS):
            yield found
            return
        is_golden = dtypes[0] in _INTEGERS
        operation = (golden if is_golden else mine).operation
        source = found.golden if is_golden else found.mine
        scales = self._scales["golden" if is_golden else "mine"]
        view = scales.view(golden if is_golden else mine, source.tensor)
        if view is None:
            reason = f"{operation.name} is quantised, its scale is not in the dump"
            yield Unmatched("golden", found.golden.record, reason)
            yield Unmatched("mine", found.mine.record, reason)
            return
        viewed = _with(source, view)
        where: SideName = "golden" if is_golden else "mine"
        side = golden if is_golden else mine
        uses = tuple(
            (where, side.source(each).record) for each in _scales_of(operation, source.tensor)
        )
        found = replace(found, uses=uses)
        reason = f"{found.reason}, dequantised"
        if is_golden:
            yield replace(found, golden=viewed, reason=reason)
        else:
            yield replace(found, mine=viewed, reason=reason)


def _scales_of(operation: Operation, tensor: Tensor) -> list[Tensor]:
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
        (_dtype(one) in _INTEGERS) != (_dtype(other) in _INTEGERS)
        for one, other in zip(golden.inputs, mine.inputs, strict=False)
    )


def roles(operation: Operation) -> Roles:
    """Inputs by what they are: ``x``, ``weight``, ``bias``, ``deqScale``; else ``input 3``."""
    inputs = list(operation.inputs)
    if SAME_WORK.get(operation.type, operation.type) not in _LINEARS or len(inputs) < 2:
        return {f"input {tensor.index}": tensor for tensor in inputs}
    found = {"x": inputs[0], "weight": inputs[1]}
    rest = inputs[2:]
    quantised = _dtype(inputs[1]) in (DType.INT8, DType.INT4)
    names = ["bias", "deqScale", "perTokenScale"] if quantised else ["bias"]
    has_bias = _parameter(operation, "hasBias")
    if (quantised and has_bias is False) or (quantised and has_bias is None and len(rest) == 1):
        names = names[1:]
    if not quantised and _parameter(operation, "enAccum"):
        names = ["accumulated"]
    for place, tensor in enumerate(rest):
        found[names[place] if place < len(names) else f"input {tensor.index}"] = tensor
    return found


class _Scales:
    """Scales of the quantised tensors of one run."""

    def __init__(self, operations: Sequence[Placed]) -> None:
        self._operations = operations

    @cached_property
    def _leaves(self) -> list[Placed]:
        return [each for each in self._operations if not each.operation.is_graph]

    @cached_property
    def _places(self) -> dict[int, int]:
        return {each.order: place for place, each in enumerate(self._leaves)}

    def view(self, each: Placed, tensor: Tensor) -> Dequantise | None:
        """How to turn a quantised tensor of an operation into real numbers; None if unknown."""
        try:
            operation = each.operation
            if tensor.role == "out":
                return _of_quantisation(operation, tensor)
            inputs = roles(operation)
            role = next((name for name, one in inputs.items() if one == tensor), "")
            if "deqScale" not in inputs:
                return self._of_input(each, tensor)
            if role == "x":
                return self._of_activation(each, inputs)
            if role == "weight":
                return self._of_weight(each, inputs)
            if role == "bias":
                return self._of_bias(each, inputs)
        except AitError:
            pass  # a scale that cannot be read is not there
        return None

    def _of_input(self, each: Placed, tensor: Tensor) -> Dequantise | None:
        """From the operation that quantised the input, which wrote the same bytes."""
        last = self._places.get(each.order)
        if last is None or not tensor.has_data:
            return None
        wanted = tensor.numpy()
        for earlier in reversed(self._leaves[max(0, last - _LOOK_BACK) : last]):
            for output in earlier.operation.outputs:
                same = output.dtype is tensor.dtype and output.has_data
                if same and np.prod(output.shape) == wanted.size:
                    values = output.numpy().reshape(-1)
                    if np.array_equal(values, wanted.reshape(-1)):
                        return _of_quantisation(earlier.operation, output)
        return None

    def _of_activation(self, each: Placed, inputs: Roles) -> Dequantise | None:
        if "perTokenScale" in inputs:
            return Dequantise(_numbers(inputs["perTokenScale"]), axis=-2)
        return self._of_input(each, inputs["x"])

    def _of_weight(self, each: Placed, inputs: Roles) -> Dequantise | None:
        scale = _scaled(each.operation, inputs)
        if "perTokenScale" not in inputs:
            of_x = self._of_input(each, inputs["x"])
            if of_x is None or len(of_x.scale) != 1:
                return None
            scale = tuple(value / of_x.scale[0] for value in scale)
        transposed = _parameter(each.operation, "transposeB") is not False
        return Dequantise(scale, axis=-2 if transposed else -1)

    def _of_bias(self, each: Placed, inputs: Roles) -> Dequantise | None:
        """The bias of a quantised product; one that also corrects the input's offset is not it."""
        if "perTokenScale" not in inputs:
            of_x = self._of_input(each, inputs["x"])
            if of_x is None or any(of_x.offset):
                return None
        return Dequantise(_scaled(each.operation, inputs))


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
    if operation.type not in _NORMS or _dtype(output) is not DType.INT8:
        return None
    if any(_dtype(other) is DType.FLOAT32 and other.index for other in operation.outputs):
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
    if _dtype(tensor) in (DType.INT64, DType.UINT64):
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


def _with(source: Source, view: View) -> Source:
    """Scales belong to the tensor as stored, but not to padding that is cut off."""
    cut = tuple(each for each in source.views if isinstance(each, Part))
    rest = tuple(each for each in source.views if not isinstance(each, Part))
    return replace(source, views=(*cut, view, *rest))


def _dtype(tensor: Tensor) -> DType | None:
    try:
        return tensor.dtype
    except AitError:
        return None


def _parameter(operation: Operation, name: str) -> object:
    try:
        return operation.params.get(name)
    except AitError:
        return None
