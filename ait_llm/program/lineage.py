"""How coarsely what a value was computed from had been rounded.

A value that was computed of float16 and widened carries the error of float16, whatever its own
type. Two right programs may differ by that much.

Weights of a few bits, and what is rounded to int8, differ from the real numbers by steps. Each
product adds an error of its own to those of the products before it, independent of them; so they
add like a random walk. All products that ran before count, which is an upper estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.metrics.precision import coarser
from ait_llm.program.call_modules import modules_around
from ait_llm.program.describe import dtype_of, shape_of
from ait_llm.program.flow import Flow, Value
from ait_llm.program.roles import is_operator

# Relative Euclidean distance of what was rounded to the nearest step, where no scale tells it:
# activations whose maximum is ten times their root mean square in int8, groups of a weight whose
# maximum is three and a half times theirs in int4.
_NARROW = {DType.INT8: 0.023, DType.INT4: 0.14}
# Operators that round what they are given to int8, block by block, where nobody sees it.
_ROUNDING = dict.fromkeys(("ggml.linear.default", "onnx.linear.default"), _NARROW[DType.INT8])
_OF_FLOAT16 = 2.0**-11  # a weight that costs no more is one of 16 bits
_PACKED = frozenset({DType.INT8, DType.UINT8, DType.INT32, DType.INT4})


class Lineage(NamedTuple):
    """What a value went through.

    Attributes:
        dtype: the coarsest floating type; None for integers.
        steps: relative Euclidean distance that numbers in few bits may have brought, which it or
            anything it was computed of was made with; 0 without any.
    """

    dtype: DType | None
    steps: float


def lineage(flow: Flow, *, of_weights: bool = True) -> tuple[Lineage, ...]:
    """The lineage of each value, by its number.

    What comes from outside of the pass has its own type. Parameters of the model count where the
    dump tells their type.

    Args:
        flow: of the pass.
        of_weights: the steps of weights in few bits count. They do not where the other side has the
            same numbers; what is rounded as the program runs does.
    """
    types = _Types(flow, of_weights=of_weights)
    found = [Lineage(None, 0.0)] * len(flow.values)
    kinds: dict[Lineage, Lineage] = {}  # a pass has few, and many values
    # Where modules alone were captured, plain code between them computes what nobody is seen to
    # write, and what modules around it return: of anything that was there by then.
    has_gaps = not any(map(is_operator, flow.run.operations))
    so_far = Lineage(None, 0.0)
    ends = _ends(flow)
    for value in _in_order(flow, ends):
        own = types.of(value, found)
        writer = value.writer
        # who hands on what it read, as a dropout does, did not make it; ATB writes into inputs
        is_made = value.uses[0].role == "out" or flow.run.traits.library
        is_whole = writer is not None and ends[writer.op] == writer.op and is_made
        if has_gaps and own.dtype is not None and not is_whole:
            own = _joined(so_far, own)
        if writer is not None:
            so_far = _joined(so_far, own)
        found[value.number] = kinds.setdefault(own, own)
    return tuple(found)


def _ends(flow: Flow) -> list[int]:
    """The last operation within each, itself where there is none."""
    ends = list(range(len(flow.parents)))
    for op in reversed(range(len(ends))):
        parent = flow.parents[op]
        if parent is not None:
            ends[parent] = max(ends[parent], ends[op])
    return ends


def _in_order(flow: Flow, ends: Sequence[int]) -> list[Value]:
    """Values as they come up: what is read first, what a module returns after its members."""

    def place(value: Value) -> tuple[int, bool]:
        writer = value.writer
        return (value.uses[0].op, False) if writer is None else (ends[writer.op], True)

    return sorted(flow.values, key=place)


def _joined(first: Lineage, second: Lineage) -> Lineage:
    return Lineage(coarsest(first.dtype, second.dtype), max(first.steps, second.steps))


class _Types:
    """Types and steps of values, asked for in the order in which they came up."""

    def __init__(self, flow: Flow, *, of_weights: bool) -> None:
        self._flow = flow
        self._of_weights = of_weights
        self._operations = flow.run.operations
        self._around = modules_around(flow)
        self._own: dict[str, list[str]] = {}
        for path in flow.run.weights:
            self._own.setdefault(path.rpartition(".")[0], []).append(path)
        self._weights: dict[str, DType | None] = {}
        self._of_module: dict[str, float] = {}
        self._counted: set[object] = set()  # modules and operations whose steps are in the sum
        self._walked = 0.0  # sum of squares

    def of(self, value: Value, known: Sequence[Lineage]) -> Lineage:
        writer = value.writer
        tensor = (writer or value.uses[0]).tensor
        own = coarsest(dtype_of(tensor), None)
        if writer is None:
            return Lineage(own, 0.0)
        is_float, op = own is not None, writer.op
        operation = self._operations[op]
        least = _steps_of(dtype_of(tensor))
        is_quantised = least > 0
        is_quantised |= self._count(op, _ROUNDING.get(operation.type, 0.0))
        for given in operation.inputs:
            is_quantised |= self._count(op, _steps_of(dtype_of(given)) or self._cost(given))
            source = self._flow.at(op, "in", given.index)
            if source is not None and source is not value:
                before = known[source.number]
                own = coarsest(own, before.dtype)
                is_quantised |= before.steps > 0
        records = [one for one in operation.weights.values() if isinstance(one, Mapping)]
        for record in records:
            own = coarsest(own, DType.of_torch(str(record.get("dtype"))))
        read = [name for one in records if isinstance(name := one.get("name"), str)]
        names = (*read, *self._own.get(operation.name, ()))
        for name in names:
            own = coarsest(own, self._weight(name))
        modules = {name.rpartition(".")[0] for name in names}
        parent = self._flow.parents[op]
        if parent is not None and is_operator(operation):  # buffers have no name in a call
            modules.add(self._operations[parent].name)
        for module in modules:
            is_quantised |= self._count(module, self._steps(module))
        for cost, name in self._told(value):
            if cost <= _OF_FLOAT16:
                own = coarsest(own, DType.FLOAT16)
            elif self._of_weights:
                is_quantised |= self._count(name, self._steps(name) or cost)
        steps = max(math.sqrt(self._walked), least) if is_quantised else 0.0
        return Lineage(own if is_float else None, steps)

    def _told(self, value: Value) -> Iterator[tuple[float, str]]:
        """What few bits have cost the modules that made a value, as the capture tells, by name."""
        for write in value.writes:
            for op in (write.op, self._around[write.op]):
                operation = None if op is None else self._operations[op]
                if operation is not None and operation.rounding:
                    yield operation.rounding, operation.name.removesuffix(f".{operation.type}")

    def _count(self, what: object, steps: float) -> bool:
        """Add the steps of a module or an operation, once; True if there are any."""
        if steps and what not in self._counted:
            self._counted.add(what)
            self._walked += steps**2
        return steps > 0

    def _cost(self, given: Tensor) -> float:
        """What rounding has cost a weight of few bits that is given as real numbers."""
        return given.rounding if self._of_weights and given.stored_as else 0.0

    def _weight(self, name: str) -> DType | None:
        """The type of a parameter."""
        if name not in self._weights:
            tensor = self._flow.run.weights.get(name)
            self._weights[name] = None if tensor is None else dtype_of(tensor)
        return self._weights[name]

    def _steps(self, module: str) -> float:
        """What rounding has cost the weight of a module; of several, the one it cost most."""
        if not self._of_weights:
            return 0.0
        if module not in self._of_module:
            weights = [(path, self._flow.run.weights[path]) for path in self._own.get(module, ())]
            found = max((each.rounding for _, each in weights), default=0.0)
            if not found:  # packed by an engine in an order of its own, or without a scale
                found = max(map(_packed, weights), default=0.0)
            self._of_module[module] = found
        return self._of_module[module]


def _packed(weight: tuple[str, Tensor]) -> float:
    """Steps of a weight of small integers of which nothing else is known; 0 for another one."""
    path, tensor = weight
    dtype = dtype_of(tensor)
    is_matrix = len(shape_of(tensor) or ()) > 1 and "weight" in path.rpartition(".")[2]
    if not is_matrix or dtype not in _PACKED:
        return 0.0
    return _steps_of(dtype) or _NARROW[DType.INT4]


def _steps_of(dtype: DType | None) -> float:
    return 0.0 if dtype is None else _NARROW.get(dtype, 0.0)


def coarsest(first: DType | None, second: DType | None) -> DType | None:
    """The coarser of two floating types, or the one that is known."""
    floats = [one for one in (first, second) if one is not None and one.is_floating]
    return coarser(floats[0], floats[-1]) if floats else None
