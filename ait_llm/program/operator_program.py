"""A pass that was captured operator by operator, without modules, as a program.

Its units are the composites of its operators: a norm is the handful of operators that make it. The
rest of the program model is that of every other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from ait_llm.dumps.model import Role as TensorRole
from ait_llm.dumps.model import Tensor
from ait_llm.program.calls import CallGraph
from ait_llm.program.composites import Composite, find_composites
from ait_llm.program.describe import size_of, width_of
from ait_llm.program.flow import Flow, Value
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import UNIT_ROLES, Parameter, Program, Unit
from ait_llm.program.roles import Role

_USES = {Role.CORE: ("query", "key", "value"), Role.ACTIVATION: ("gate",), Role.GATED: ("", "up")}
_CACHING = frozenset({"cat", "index_put", "index_copy", "slice_scatter", "scatter", "copy"})
_FAR = 12  # operators between a projection and what its result is for


class OperatorProgram(Program):
    """A pass of operators.

    Args:
        run: the pass.
        calls_of: makes its graph of the pass and its flow, whose numbers the values have, later
            ones for those that were not dumped; and the index of the operation of each call.
    """

    def __init__(
        self, run: Pass, calls_of: Callable[[Pass, Flow], tuple[CallGraph, Sequence[int | None]]]
    ) -> None:
        super().__init__(run)
        self.has_modules = False
        self._graph, self._places = calls_of(run, self.flow)

    def _role(self, op: int) -> Role:
        return Role.OPERATOR

    @cached_property
    def composites(self) -> list[Composite]:
        """What the operators make together."""
        return find_composites(self._graph)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Composites that modules would be."""
        found = [
            self._unit_of(each)
            for each in self.composites
            if each.role in UNIT_ROLES and each.role is not Role.GATED
        ]
        return tuple(unit for unit in found if unit is not None)

    def _unit_of(self, each: Composite) -> Unit | None:
        source = None if each.source is None else self._value(each.source)
        result = self._value(each.result)
        if source is None and result is None:
            return None
        read, written = self._tensor(each, source, "in"), self._tensor(each, result, "out")
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

    @cached_property
    def _by_op(self) -> dict[tuple[int | None, Role], Composite]:
        return {(self._op(each), each.role): each for each in self.composites}

    def parameter(self, unit: Unit, kind: str) -> Parameter | None:
        """The ``weight`` or ``bias`` of a unit; None if it has none."""
        composite = self._by_op.get((unit.op, unit.role))
        number = None if composite is None else composite.operands.get(kind)
        value = None if number is None else self._value(number)
        if composite is None or value is None or not value.uses:
            return None
        transposed = kind == "weight" and composite.definition.get("out_in") is False
        return Parameter(unit.op, kind, value.uses[0].tensor, value, transposed)

    def purpose_of(self, value: Value) -> str:
        """What a value is for: the place at which attention or a gated activation takes it."""
        return self._purposes.get(value.number, "")

    @cached_property
    def _purposes(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for each in self.composites:
            values = (each.source, each.operands.get("key"), each.operands.get("value"))
            if each.role is Role.GATED:
                values = (None, each.operands.get("up"), None)
            for purpose, value in zip(_USES.get(each.role, ()), values, strict=False):
                for number in self._made_of(value) if purpose and value is not None else ():
                    found.setdefault(number, purpose)
        return found

    def _made_of(self, value: int) -> Iterator[int]:
        """A value, and what it was made of by moving, turning or normalising alone."""
        graph = self._graph
        for _ in range(_FAR):
            yield value
            place = graph.writer(value)
            if place is None:
                return
            inner = self._last.get(place)
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

    @cached_property
    def _last(self) -> dict[int, Composite]:
        return {each.members[-1]: each for each in self.composites}
