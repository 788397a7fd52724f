"""A pass as a program: its values, the roles of its operations, and the units among them.

A unit is an operation that both sides have in one form or another: a norm, a projection, an
embedding, an activation. What lies between units (sums, splits, rotary positions, attention
itself) is written as an operation on one side and as plain code on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.program.adapted import reads_adapted, with_adapters
from ait_llm.program.call_modules import CallModules
from ait_llm.program.common_nodes import CommonNode
from ait_llm.program.describe import is_float, params_of, shape_of, size_of, width_of
from ait_llm.program.experts import find_experts
from ait_llm.program.flow import Flow, Use, Value, flow
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import kind_of
from ait_llm.program.pieces import find_pieces
from ait_llm.program.roles import Role, adds_residual, atb_role, torch_role
from ait_llm.program.rotations import Rotation

# How attention says its number of key-value heads, else of all heads, the surest first.
_HEADS = (
    "kvHeadNum",
    "num_key_value_heads",
    "num_kv_heads",
    "n_query_groups",
    "headNum",
    "num_attention_heads",
    "num_heads",
    "n_head",
)
# Which inputs of ATB operations hold weights.
_ATB_PLACES = {
    Role.EMBEDDING: {"weight": 0},
    Role.LINEAR: {"weight": 1, "bias": 2},
    Role.NORM: {"weight": 1, "bias": 2},
}
_RMS_INPUTS = 4  # what it adds up, perhaps a bias, the weight; one that quantises has more
UNIT_ROLES = frozenset(
    {Role.NORM, Role.LINEAR, Role.EMBEDDING, Role.ACTIVATION, Role.GATED, Role.EXPERTS}
)


@dataclass(frozen=True, slots=True)
class Unit:
    """An operation that has a counterpart on the other side.

    Attributes:
        op: index of the operation.
        role: what it does.
        source: what it reads as activation; None if that was not dumped.
        result: what it writes, with the bias that a later operation adds; None if that was not
            dumped, or if nothing tells which of its results it is.
        fan_in, fan_out: widths of source and result, 0 if unknown.
        size: elements of the source per element of its last axis.
        bare: the result before a later operator adds a bias or multiplies it by a number; None if
            none of the unit does that, or if it was not dumped.
    """

    op: int
    role: Role
    source: Value | None
    result: Value | None
    fan_in: int
    fan_out: int
    size: int = 0
    bare: Value | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight of an operation.

    Attributes:
        op: index of the operation.
        name: ``weight``, ``bias``, or what else the module calls it.
        tensor: the weight.
        value: the value that the operation reads; None for a parameter of a module.
        transposed: True if it is ``[in, out]``.
    """

    op: int
    name: str
    tensor: Tensor
    value: Value | None
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of columns of one projection, and what it is for as far as known."""

    unit: Unit
    start: int
    width: int
    purpose: str = ""


class Program:
    """A forward pass as a dataflow graph: values, roles and units."""

    def __init__(self, run: Pass) -> None:
        self.run = run
        self.flow: Flow = flow(run)
        self.is_packed = run.traits.library  # its tensors show it everywhere else
        self._is_atb = run.traits.library
        self.has_modules = not self._is_atb
        self._members: dict[int, list[int]] = {}
        for op, parent in enumerate(self.flow.parents):
            if parent is not None:
                self._members.setdefault(parent, []).append(op)
        self.columns: dict[int, list[Column]] = {}
        self.adapters = frozenset() if self._is_atb else with_adapters(run.weights, run.operations)
        self.roles = tuple(self._role(op) for op in range(len(run.operations)))
        if self.has_modules:
            find_pieces(self)

    @cached_property
    def modules(self) -> CallModules:
        """The modules in which its calls lie."""
        return CallModules(self.flow)

    @cached_property
    def fusing(self) -> int:
        """How much one operation computes: 2 of the acceleration library, 1 of engines, else 0."""
        if self._is_atb:
            return 2
        ids = next((u.source for u in self.units if u.role is Role.EMBEDDING and u.source), None)
        return int(ids is not None and len(shape_of(ids.uses[0].tensor) or ()) == 1)

    @cached_property
    def nodes(self) -> Mapping[str, CommonNode]:
        """Nodes of a graph that other programs may be made of, too, by name; mostly none."""
        return {}

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations of the run."""
        return self.run.operations

    def members(self, op: int) -> Sequence[int]:
        """The operations directly within a graph or module."""
        return self._members.get(op, ())

    @property
    def tops(self) -> list[int]:
        """The operations that run within no other."""
        return [op for op, parent in enumerate(self.flow.parents) if parent is None]

    def within(self, op: int) -> list[int]:
        """All operations below one, in execution order."""
        found: list[int] = []
        pending = list(reversed(self.members(op)))
        while pending:
            member = pending.pop()
            found.append(member)
            pending += reversed(self.members(member))
        return found

    def _role(self, op: int) -> Role:
        operation = self.operations[op]
        if self._is_atb:
            return atb_role(operation)
        inside = {torch_role(self.operations[m], has_modules=False) for m in self.members(op)}
        role = torch_role(operation, has_modules=bool(inside - {Role.OPERATOR}))
        if operation.name in self.adapters and role in (Role.CONTAINER, Role.UNKNOWN):
            return Role.LINEAR
        if role is Role.EXPERTS and inside - {Role.OPERATOR, Role.ACTIVATION}:
            return Role.CONTAINER  # its experts are modules themselves
        return role

    def kind(self, op: int) -> str:
        """What an operator computes, in the words of torch, else of its own dump."""
        return kind_of(self.operations[op]) or self.operations[op].type

    def value(self, op: int, tensor: Tensor) -> Value | None:
        """The value of a tensor of an operation."""
        return self.flow.at(op, tensor.role, tensor.index)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Units in execution order; nothing within a unit is one."""
        units = []
        inner: set[int] = set()
        experts = {} if self._is_atb else find_experts(*self._tree)
        for members in experts.values():
            for member in members:
                inner.update((member, *self.within(member)))
        for op, role in enumerate(self.roles):
            if op in inner:
                continue
            if role in UNIT_ROLES or (role is Role.UNKNOWN and self._may_be_unit(op)):
                unit = self._unit(op, role)
                if unit is not None:
                    units.append(unit)
                    inner.update(self.within(op))
        for block in experts:
            unit = self._sum_over_experts(block, units)
            if unit is not None:
                end = max(self.within(block))
                place = next((n for n, u in enumerate(units) if u.op > end), len(units))
                units.insert(place, unit)
        return tuple(self._told_by_siblings(units))

    @property
    def _tree(self) -> tuple[Sequence[Operation], Sequence[Role], Sequence[int | None]]:
        return self.operations, self.roles, self.flow.parents

    def _sum_over_experts(self, block: int, units: list[Unit]) -> Unit | None:
        """The block around experts as a unit; None if it computes more than their sum."""
        inside = set(self.within(block))
        beside = [unit for unit in units if unit.op in inside and unit.role is Role.LINEAR]
        return self._unit(block, Role.EXPERTS) if len(beside) <= 1 else None

    @staticmethod
    def _told_by_siblings(units: list[Unit]) -> Iterator[Unit]:
        """A module of unknown work that reads what projections read is a projection."""
        read = {id(u.source) for u in units if u.role is Role.LINEAR and u.source is not None}
        for unit in units:
            is_sibling = unit.role is Role.UNKNOWN and id(unit.source) in read
            yield replace(unit, role=Role.LINEAR) if is_sibling else unit

    @cached_property
    def unit_of(self) -> dict[int, Unit]:
        """Units by operation."""
        return {unit.op: unit for unit in self.units}

    def ops_of(self, unit: Unit) -> tuple[int, ...]:
        """The operations that compute a unit, in execution order."""
        return (unit.op,)

    def _may_be_unit(self, op: int) -> bool:
        """True for a module of unknown work that makes one activation of another."""
        operation = self.operations[op]
        sides = (operation.inputs, operation.outputs)
        return not self._is_atb and all(sum(map(is_float, tensors)) == 1 for tensors in sides)

    def _unit(self, op: int, role: Role) -> Unit | None:
        operation = self.operations[op]
        source = self._source(op, role)
        result = next((t for t in operation.outputs if is_float(t)), None)
        if result is None and role is Role.LINEAR:  # integer results of quantised products
            result = next(iter(operation.outputs), None)
        if source is None and result is None:
            return None
        out = None if result is None else self.value(op, result)
        if out is not None and self._is_atb and role is Role.LINEAR:
            out = self._with_bias(op, out)
        if role is Role.LINEAR and not self._is_atb and _has_twins(operation, result):
            out = None
        fan_in = 0 if source is None or role is Role.EMBEDDING else width_of(source)
        return Unit(
            op=op,
            role=role,
            source=None if source is None else self.value(op, source),
            result=out,
            fan_in=fan_in,
            fan_out=0 if result is None else width_of(result),
            size=size_of(source) // fan_in if source is not None and fan_in else 0,
        )

    def _source(self, op: int, role: Role) -> Tensor | None:
        """The activation among the inputs."""
        inputs = self.operations[op].inputs
        if role is Role.EMBEDDING:
            return next((t for t in inputs if not is_float(t) and shape_of(t) is not None), None)
        first = next(iter(inputs), None)
        if self._is_atb:  # which may be quantised; scales that follow are floats
            return first
        return next((tensor for tensor in inputs if is_float(tensor)), first)

    @cached_property
    def siblings(self) -> dict[int, list[Unit]]:
        """Projections by the number of the value that they read."""
        found: dict[int, list[Unit]] = {}
        for unit in self.units:
            if unit.role is Role.LINEAR and unit.source is not None:
                found.setdefault(unit.source.number, []).append(unit)
        return found

    @cached_property
    def key_value_heads(self) -> int:
        """Heads of keys and values, from the definition of attention; 0 if nothing says so."""
        for operation in self.operations:
            params = {**params_of(operation), **operation.definition}
            for key in _HEADS:
                number = params.get(key)
                if type(number) is int and number > 0:
                    return number
        return 0

    def parameter(self, unit: Unit, kind: str) -> Parameter | None:
        """The ``weight`` or ``bias`` of a unit; None if it has none or it was not captured."""
        operation = self.operations[unit.op]
        if not self._is_atb:
            name = f"{operation.name}.{kind}"
            tensor = self.run.weights.get(name, operation.parameters.get(name))
            is_conv = operation.type == "Conv1D"  # keeps its weight as [in, out]
            return None if tensor is None else Parameter(unit.op, kind, tensor, None, is_conv)
        index = _atb_places(unit.role, operation).get(kind)
        tensor = next((t for t in operation.inputs if t.index == index), None)
        value = None if tensor is None else self.value(unit.op, tensor)
        if tensor is None or value is None or value.writes:
            return None
        transposed = unit.role is Role.LINEAR and params_of(operation).get("transposeB") is False
        return Parameter(unit.op, kind, tensor, value, transposed)

    def table(self, unit: Unit) -> Parameter | None:
        """The weight of an embedding, also where the operator that reads it has no tensor of it."""
        return self.parameter(unit, "weight")

    def reads_adapted(self, op: int) -> bool:
        """True for an operator of a module with an adapter that reads what it is made of."""
        return reads_adapted(self.operations[op], self.adapters)

    def is_part(self, op: int) -> bool:
        """True for a part of what other programs compute in one operation."""
        return False

    def parameters_of(self, op: int) -> list[Parameter]:
        """Captured parameters and buffers that belong to a module itself."""
        name = self.operations[op].name
        return [
            Parameter(op, kind, self.run.weights[f"{name}.{kind}"], None)
            for kind in self._parameters.get(name, ())
        ]

    @cached_property
    def _parameters(self) -> dict[str, list[str]]:
        """Names of parameters by the path of their module."""
        found: dict[str, list[str]] = {}
        for path in self.run.weights:
            name, _, kind = path.rpartition(".")
            found.setdefault(name, []).append(kind)
        return found

    def purpose_of(self, value: Value) -> str:
        """What a value is for, where the operators of the program tell; else empty."""
        return ""

    def rotated(self, op: int, tensor: Tensor) -> Value | None:
        """What a rotary operation makes of one of its inputs; None of tables and positions."""
        operation = self.operations[op]
        sources = [other for other in operation.inputs if is_float(other)]
        results = [other for other in operation.outputs if is_float(other)]
        shapes = [shape_of(other) for other in results]
        if tensor not in sources[: len(results)] or shapes != [
            shape_of(other) for other in sources[: len(results)]
        ]:
            return None
        return self.value(op, results[sources.index(tensor)])

    @property
    def rotations(self) -> Mapping[int, Rotation]:
        """What is turned by rotary positions, by number, and what is made of it."""
        return {}

    def readers(self, value: Value, through: set[Role]) -> list[Use]:
        """Who reads a value, also behind operations of these roles."""
        found = []
        pending = [value]
        while pending:
            for use in pending.pop().reads:
                found.append(use)
                if self.roles[use.op] in through:
                    outputs = self.operations[use.op].outputs
                    pending += filter(None, (self.value(use.op, tensor) for tensor in outputs))
        return found

    def _with_bias(self, op: int, value: Value) -> Value:
        """The value after a collective or the sum with a bias, which a torch linear includes."""
        for _ in range(2):
            readers = [use for use in value.reads if self.roles[use.op] is not Role.CONTAINER]
            if len(readers) != 1:
                return value
            reader = readers[0].op
            role = self.roles[reader]
            if role is not Role.COLLECTIVE and not (
                role is Role.ADD and self._adds_bias(reader, value)
            ):
                return value
            written = [self.value(reader, tensor) for tensor in self.operations[reader].outputs]
            if len(written) != 1 or written[0] is None:
                return value
            value = written[0]
        return value

    def _adds_bias(self, op: int, value: Value) -> bool:
        others = [t for t in self.operations[op].inputs if self.value(op, t) is not value]
        if len(others) != 1:
            return False
        shape = shape_of(others[0])
        if not shape or size_of(others[0]) != shape[-1]:
            return False
        return len(shape) == 1 or self._rows(value) > 1  # else it may be another activation

    def _rows(self, value: Value) -> int:
        tensor = value.uses[0].tensor
        return size_of(tensor) // max(width_of(tensor), 1)


def _atb_places(role: Role, operation: Operation) -> Mapping[str, int]:
    """Which inputs hold the weight and the bias of an operation of ATB.

    Norms that add a residual take it, and perhaps a bias of what they add it to, before their own.
    """
    if role is not Role.NORM or not adds_residual(operation):
        return _ATB_PLACES.get(role, {})
    if "Rms" in operation.type and len(operation.inputs) <= _RMS_INPUTS:
        return {"weight": len(operation.inputs) - 1}
    return {"weight": 2, "bias": 3}


def _has_twins(operation: Operation, result: Tensor | None) -> bool:
    """True for a projection that gives its product and more of that shape: a router's scores."""
    shapes = [shape_of(each) for each in operation.outputs if is_float(each)]
    return result is not None and shapes.count(shape_of(result)) > 1
