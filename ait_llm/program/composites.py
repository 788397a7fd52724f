"""What several operators make together: norms, projections, activations, attention, rotary.

A module of one program is a handful of operators in another: an RMS norm is a power, a mean, a sum,
a root and two products. Composites are found in the graph of operators alone, without names of
modules, so that they serve every capture of operators alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ait_llm.program.calls import CallGraph
from ait_llm.program.roles import Role

Definition = Mapping[str, float | str | bool]


@dataclass(frozen=True, slots=True)
class Composite:
    """Operators that have one meaning together.

    Attributes:
        role: what they compute.
        members: places of the calls, in execution order; the last one makes the result.
        source: the value that it is computed of; None if nothing tells.
        result: the value that it makes.
        operands: further values by name: ``weight``, ``bias``, ``ids``, ``key``, ``value``, ``up``,
            ``cos``, ``sin``, ``mask``; weights as they came from outside.
        definition: what decides the result beside the operands: ``eps``, ``scale``.
        bare: the result before the last member adds a bias or multiplies by a number; None if no
            member does only that.
    """

    role: Role
    members: tuple[int, ...]
    source: int | None
    result: int
    operands: Mapping[str, int] = field(default_factory=dict)
    definition: Definition = field(default_factory=dict)
    bare: int | None = None


Finder = Callable[[CallGraph], Iterator[Composite]]


def find_composites(graph: CallGraph) -> list[Composite]:
    """All composites of a graph, in the order of their last members.

    A gated activation is found beside the activation within it; no other two share their last
    member.
    """
    from ait_llm.program.composite_adapters import adapted
    from ait_llm.program.composite_attention import attention, rotary
    from ait_llm.program.composite_norms import norms
    from ait_llm.program.composite_scaled import scaled
    from ait_llm.program.composite_units import activations, embeddings, gated, linears

    found: list[Composite] = []
    taken: set[int] = set()
    finders: tuple[Finder, ...] = (
        norms,
        rotary,
        attention,
        adapted,
        scaled,
        linears,
        embeddings,
        activations,
    )
    for finder in finders:
        for each in finder(graph):
            if taken.isdisjoint(each.members):
                taken.update(each.members)
                found.append(each)
    found += gated(graph, found)
    return sorted(found, key=lambda each: each.members[-1])
