"""The order of executions where no ledger tells it.

Folders are named by execution counts, and an operation that two phases share is ahead of those
that only one has. What reads a value ran after what computed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from ait_llm.program.executions import Execution, computed_sizes


def in_order_of_values(executions: Sequence[Execution]) -> list[Execution]:
    """Executions so that who reads a value comes after who computed it, else by count and id.

    Values that were computed twice, as by the same request again, tell nothing.
    """
    later = _later(executions)
    waiting = [0] * len(executions)
    for places in later:
        for place in places:
            waiting[place] += 1
    ready = [(each.count, each.top, place) for place, each in enumerate(executions)]
    left = dict.fromkeys(sorted(range(len(executions)), key=lambda place: ready[place]))
    heap = [ready[place] for place in left if not waiting[place]]
    heapify(heap)
    found = []
    while heap:
        place = heappop(heap)[2]
        del left[place]
        found.append(executions[place])
        for other in later[place]:
            waiting[other] -= 1
            if not waiting[other]:
                heappush(heap, ready[other])
    return [*found, *(executions[place] for place in left)]  # those that wait for one another


def _later(executions: Sequence[Execution]) -> list[set[int]]:
    """For each execution the places of those that surely ran after it."""
    later: list[set[int]] = [set() for _ in executions]
    before: dict[int, int] = {}
    for place in sorted(range(len(executions)), key=lambda place: executions[place].count):
        top = executions[place].top
        if top in before:
            later[before[top]].add(place)
        before[top] = place
    writers: dict[bytes, int | None] = {}
    for place, each in enumerate(executions):
        for mark in each.computed:
            writers[mark] = place if writers.get(mark, place) == place else None
    sizes = computed_sizes(executions)
    for place, each in enumerate(executions):
        for mark in each.handed(sizes):
            writer = writers.get(mark)
            if writer is not None and writer != place:
                later[writer].add(place)
    return later
