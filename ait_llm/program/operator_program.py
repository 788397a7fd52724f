"""A pass that was captured operator by operator, without modules, as a program.

Its units are the composites of its operators: a norm is the handful of operators that make it. The
rest of the program model is that of every other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ait_llm.dumps.model import Role as TensorRole
from ait_llm.dumps.model import Tensor
from ait_llm.program.calls import CallGraph
from ait_llm.program.common_nodes import CommonNode
from ait_llm.program.composites import Composite, find_composites
from ait_llm.program.describe import shape_of, size_of, width_of
from ait_llm.program.flow import Flow, Value
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import kind_of
from ait_llm.program.overwritten import Overwritten
from ait_llm.program.program import UNIT_ROLES, Parameter, Program, Unit
from ait_llm.program.roles import Role
from ait_llm.program.rotations import Rotation, joined_table

_USES = {Role.CORE: ("query", "key", "value"), Role.ACTIVATION: ("gate",), Role.GATED: ("", "up")}
_CACHING = frozenset({"cat", "index_put", "index_copy", "slice_scatter", "scatter", "copy"})
_FAR = 12  # operators between a projection and what its result is for


class OperatorProgram(Program):
    """A pass of operators.

    Args:
        run: the pass.
        calls_of: makes its graph of the pass and its flow, whose numbers the values have, later
            ones for those that were not dumped; and the index of the operation of each call.
        nodes_of: finds the nodes of a graph that other programs may be made of, too.
    """

    def __init__(
        self,
        run: Pass,
        calls_of: Callable[[Pass, Flow], tuple[CallGraph, Sequence[int | None]]],
        nodes_of: Callable[[Pass, Flow], Mapping[str, CommonNode]] | None = None,
    ) -> None:
        super().__init__(run)
        self.has_modules = False
        self._nodes_of = nodes_of
        graph, self._places = calls_of(run, self.flow)
        self._kinds = self._kinds_of(graph)
        self._composites = find_composites(graph)
        self._purposes = self._purposes_in(graph)
        self._rotations = self._rotations_in(graph)

    def _role(self, op: int) -> Role:
        return Role.OPERATOR

    @cached_property
    def nodes(self) -> Mapping[str, CommonNode]:
        """Nodes of a graph that other programs may be made of, too, by name.

        A product may be only a part of what others make with one weight.
        """
        found = {} if self._nodes_of is None else self._nodes_of(self.run, self.flow)
        return {
            name: replace(node, is_part=True) if node.op in self._parts else node
            for name, node in found.items()
        }

    @cached_property
    def _parts(self) -> frozenset[int | None]:
        """Operations of products that several operators make of what is no weight of others.

        Modules count that hold some of them, and not all: the base of an adapter, say.
        """
        found: set[int | None] = set()
        for each in self._composites:
            if each.role is Role.LINEAR and "weight" not in each.operands:
                places = [self._places[member] for member in each.members]
                around = [set(self.modules.around(op)) for op in places if op is not None]
                found.update(places)
                for modules in around:
                    found.update(modules - around[0].intersection(*around))
        return frozenset(found)

    def is_part(self, op: int) -> bool:
        """True for a part of what other programs compute in one operation."""
        return op in self._parts

    def kind(self, op: int) -> str:
        """What an operator computes, in the words of torch, else of its own dump."""
        operation = self.operations[op]
        return self._kinds.get(op) or f"{operation.direction} {super().kind(op)}".strip()

    def _kinds_of(self, graph: CallGraph) -> dict[int, str]:
        """Kinds of the operations whose types are no words of torch, and of kernels.

        A kernel has all the kinds of what it computes, also of what it stores nowhere: a product
        with a sum behind it is no sum, and one that turns its weight first does not read the weight
        that a product reads.
        """
        found: dict[int, list[str]] = {}
        for place, call in zip(self._places, graph.calls, strict=True):
            if place is None:
                continue
            is_kernel = self.operations[place].launch is not None
            if is_kernel and graph.is_passing(call.kind):
                continue
            if is_kernel or not kind_of(self.operations[place]):
                found.setdefault(place, []).append(call.kind)
        return {
            place: "+".join(kinds)
            for place, kinds in found.items()
            if len(kinds) == 1 or self.operations[place].launch is not None
        }

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Composites that modules would be."""
        found = [
            self._unit_of(each)
            for each in self._composites
            if each.role in UNIT_ROLES and each.role is not Role.GATED
        ]
        return tuple(unit for unit in found if unit is not None)

    def _unit_of(self, each: Composite) -> Unit | None:
        source = None if each.source is None else self._value(each.source)
        result = self._value(each.result)
        if source is None and result is None:
            return None
        read, written = self._tensor(each, source, "in"), self._tensor(each, result, "out")
        if each.role is Role.NORM and "weight" not in each.operands and result is not None:
            # what nobody reads goes on where nothing was captured: it is cast, then has its weight
            result = result if result.reads else None
        fan_in = 0 if read is None or each.role is Role.EMBEDDING else width_of(read)
        size = size_of(read) // fan_in if read is not None and fan_in else 0
        op = self._op(each)
        if op is None:
            return None
        return Unit(
            op=op,
            role=each.role,
            source=source,
            result=result,
            fan_in=fan_in,
            fan_out=0 if written is None else width_of(written),
            size=size,
            bare=None if each.bare is None else self._value(each.bare),
        )

    def _tensor(self, each: Composite, value: Value | None, role: TensorRole) -> Tensor | None:
        """The tensor of a value as the members of a composite read or write it.

        Elsewhere it may have another shape: a view is no value of its own.
        """
        if value is None:
            return None
        ops = {self._places[member] for member in each.members}
        own = (use.tensor for use in value.uses if use.op in ops and use.role == role)
        return next(own, value.uses[0].tensor if value.uses else None)

    def _value(self, number: int) -> Value | None:
        return self.flow.values[number] if number < len(self.flow.values) else None

    def _op(self, each: Composite) -> int | None:
        """The operation that makes a composite's result, or the last before it that was dumped."""
        places = (self._places[member] for member in reversed(each.members))
        return next((place for place in places if place is not None), None)

    def ops_of(self, unit: Unit) -> tuple[int, ...]:
        """The operations that compute a unit together, in execution order."""
        composite = self._by_op.get((unit.op, unit.role))
        members = () if composite is None else composite.members
        places = (self._places[member] for member in members)
        return tuple(place for place in places if place is not None) or (unit.op,)

    @cached_property
    def _by_op(self) -> dict[tuple[int | None, Role], Composite]:
        return {(self._op(each), each.role): each for each in self._composites}

    def parameter(self, unit: Unit, kind: str) -> Parameter | None:
        """The ``weight`` or ``bias`` of a unit; None if it has none."""
        composite = self._by_op.get((unit.op, unit.role))
        number = None if composite is None else composite.operands.get(kind)
        value = None if number is None else self._value(number)
        if composite is None or value is None or not value.uses:
            return None
        transposed = kind == "weight" and composite.definition.get("out_in") is False
        return Parameter(unit.op, kind, value.uses[0].tensor, value, transposed)

    def table(self, unit: Unit) -> Parameter | None:
        """The weight of an embedding, also where the operator that reads it has no tensor of it."""
        known = self.parameter(unit, "weight")
        record = self.operations[unit.op].weights.get("input_0")
        if known is not None or not isinstance(record, Mapping):
            return known
        saved = self.run.weights.get(str(record.get("name")))
        is_whole = saved is not None and list(shape_of(saved) or ()) == record.get("shape")
        return Parameter(unit.op, "weight", saved, None) if saved is not None and is_whole else None

    @property
    def rotations(self) -> Mapping[int, Rotation]:
        """What is turned by rotary positions, by number, and what is made of it."""
        return self._rotations

    def _rotations_in(self, graph: CallGraph) -> dict[int, Rotation]:
        found: dict[int, Rotation] = {}
        turned_again: set[int] = set()
        for each in self._composites:
            result = self._value(each.result)
            if each.role is not Role.ROTARY or each.source is None or result is None:
                continue
            source = graph.before(each.source, order=True)
            if source in found:
                turned_again.add(source)
            op = self._op(each)
            joined = None if op is None else joined_table(self.run, self._overwritten, op)
            cosine, sine = (
                None if joined is not None or name not in each.operands else each.operands[name]
                for name in ("cos", "sin")
            )
            found[source] = Rotation(
                result,
                None if cosine is None else self._value(cosine),
                None if sine is None else self._value(sine),
                joined,
            )
        return {source: each for source, each in found.items() if source not in turned_again}

    @cached_property
    def _overwritten(self) -> Overwritten:
        return Overwritten(self.flow)

    def purpose_of(self, value: Value) -> str:
        """What a value is for: the place at which attention or a gated activation takes it."""
        return self._purposes.get(value.number, "")

    def _purposes_in(self, graph: CallGraph) -> dict[int, str]:
        """What values are for, by number."""
        last = {each.members[-1]: each for each in self._composites}
        found: dict[int, str] = {}
        for each in self._composites:
            values = (each.source, each.operands.get("key"), each.operands.get("value"))
            if each.role is Role.GATED:
                values = (None, each.operands.get("up"), None)
            for purpose, value in zip(_USES.get(each.role, ()), values, strict=False):
                for number in _made_of(value, graph, last) if purpose and value is not None else ():
                    found.setdefault(number, purpose)
        return found


def _made_of(value: int, graph: CallGraph, last: Mapping[int, Composite]) -> Iterator[int]:
    """A value, and what it was made of by moving, turning or normalising alone."""
    for _ in range(_FAR):
        yield value
        place = graph.writer(value)
        if place is None:
            return
        inner = last.get(place)
        if inner is not None and inner.role in (Role.ROTARY, Role.NORM) and inner.source:
            value = inner.source
        elif graph.calls[place].inputs and graph.is_passing(
            graph.kind(place), order=True, pieces=True
        ):
            value = graph.calls[place].inputs[0]
        elif graph.kind(place) in _CACHING and graph.calls[place].inputs:
            value = graph.calls[place].inputs[-1]  # what is new in a cache
        else:
            return
