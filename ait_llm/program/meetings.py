"""Collective calls of all processes of a dump: which of them are one communication.

The k-th call of a kind that one member makes in a group is the k-th of every other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from ait_llm.dumps.model import Dump, Operation

Call = tuple[int, int, int, str, int]
Meetings = Mapping[Call, tuple[Operation, ...]]
_Group = tuple[int, str, tuple[int, ...]]  # step, kind, ranks

_known: WeakKeyDictionary[Dump, Meetings] = WeakKeyDictionary()


def with_meetings(dump: Dump, operations: Sequence[Operation]) -> list[Operation]:
    """The same; collectives get the calls of all members of their group, where all are there."""
    if not any(each.group for each in operations):
        return list(operations)
    if dump not in _known:
        _known[dump] = _meetings(dump)
    found = _known[dump]
    return [replace(each, peers=found.get(_call(each), ())) for each in operations]


def _meetings(dump: Dump) -> Meetings:
    made: dict[_Group, dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for each in dump.operations():
        if each.group is not None:
            made[each.step, each.type, each.group.ranks][each.group.place].append(each)
    found: dict[Call, tuple[Operation, ...]] = {}
    for (_, _, ranks), by_place in made.items():
        calls = [by_place.get(place, []) for place in range(len(ranks))]
        processes = [{(each.device, each.pid) for each in own} for own in calls]
        if len({len(own) for own in calls}) != 1 or any(len(own) != 1 for own in processes):
            continue
        for meeting in zip(*calls, strict=True):
            found |= {_call(each): meeting for each in meeting}
    return found


def _call(operation: Operation) -> Call:
    return operation.device, operation.pid, operation.step, operation.name, operation.call
