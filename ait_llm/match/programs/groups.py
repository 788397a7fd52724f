"""Units of a block that either side may compute as one: projections of the same value."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.match.programs.fuse import same_family
from ait_llm.program.program import Program, Unit
from ait_llm.program.roles import Role

Group = tuple[Unit, ...]


def groups(side: Program, units: Sequence[Unit]) -> list[Group]:
    """Units one by one, but projections of the same value together."""
    found: list[list[Unit]] = []
    by_source: dict[int, list[Unit]] = {}  # groups by the value that their last unit reads
    for unit in units:
        if unit.role is not Role.LINEAR:
            found.append([unit])
            continue
        source = None if unit.source is None else unit.source.number
        group = None if source is None else by_source.get(source)
        if group is None and found and _are_neighbours(side, found[-1][-1], unit):
            group = found[-1]
            if group[-1].source is not None:
                by_source.pop(group[-1].source.number, None)
        if group is None:
            group = []
            found.append(group)
        group.append(unit)
        if source is not None:
            by_source[source] = group
    return [tuple(group) for group in found]


def _are_neighbours(side: Program, earlier: Unit, unit: Unit) -> bool:
    """Without values to tell: projections that take the same width, for one purpose by names."""
    if earlier.role is not Role.LINEAR or earlier.fan_in != unit.fan_in:
        return False
    if any(u.source is not None and len(u.source.uses) > 1 for u in (earlier, unit)):
        return False
    if side.is_packed:
        return unit.op == earlier.op + 1
    return same_family(side.operations[earlier.op].name, side.operations[unit.op].name)


def projections(units: Sequence[Unit]) -> list[Unit]:
    """The projections among some units."""
    return [unit for unit in units if unit.role is Role.LINEAR]


def widths_of(unit: Unit) -> tuple[int, int]:
    """What a unit reads and what it writes, elements of the last axis of each."""
    return unit.fan_in, unit.fan_out
