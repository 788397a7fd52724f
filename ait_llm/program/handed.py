"""Executions that handed values to one another belong to one pass.

A pass is a chain: it begins with token ids and each operation reads what an earlier one has just
computed. What many passes read (weights, caches, tables, masks, a state that is carried on) is no
reason to join them, so only these values join executions:

- floating point numbers, told again by their digest, that an execution computed;
- the first time that they are read: who reads them later, and nothing else of that pass, reads a
  table or what another model left. A branch that goes back to an older value is joined where it
  comes together again with the rest;
- not what an operation changed in place, which is a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ait_llm.program.executions import Execution, computed_sizes


@dataclass(slots=True)
class Chain:
    """Executions that hang together.

    Attributes:
        places: of its executions in the order of the process; ascending once all are joined.
        tops: ids of its operations.
        first, last: places of the executions that ran first and last.
        tables: digests of what it looks up without having computed the indices: embeddings.
        computes: True if something in it works on what was looked up or computed.
        behind: places whose values it reads although others had read them before.
    """

    places: list[int]
    tops: set[int]
    first: int
    last: int
    tables: set[bytes] = field(default_factory=set)
    computes: bool = False
    behind: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Written:
    """A value: who wrote it, and who read it first."""

    place: int
    reader: int | None = None


def chains_of(executions: Sequence[Execution]) -> list[Chain]:
    """Executions by what they handed to one another, in the order in which they began."""
    return _Joining(executions).join()


class _Joining:
    def __init__(self, executions: Sequence[Execution]) -> None:
        self._executions = executions
        self._chains: list[Chain] = []
        self._parents = list(range(len(executions)))
        self._written: dict[bytes, _Written] = {}
        self._ran: dict[int, int] = {}  # when an operation ran last
        self._sizes = computed_sizes(executions)

    def join(self) -> list[Chain]:
        for place, execution in enumerate(self._executions):
            chain = Chain([place], {execution.top}, place, place)
            self._chains.append(chain)
            read = self._read(place, execution)
            if read or execution.table is None:
                chain.computes = True
            elif (mark := execution.table.mark) is not None:
                chain.tables.add(mark)
            first = [each.place for each in read if each.reader == place]
            chain.behind = [each.place for each in read if each.reader != place]
            self._hang_together(place, sorted(set(first), reverse=True))
            self._ran[execution.top] = place
            self._written |= {mark: _Written(place) for mark in execution.computed}
        roots = [place for place in range(len(self._chains)) if self._root(place) == place]
        found = [self._chains[root] for root in roots]
        for chain in found:
            chain.places.sort()
        return sorted(found, key=lambda chain: chain.first)

    def _read(self, place: int, execution: Execution) -> list[_Written]:
        """The computed values that an execution reads; those that it reads first are marked."""
        found = []
        for mark in execution.handed(self._sizes):
            value = self._written.get(mark)
            if value is None:
                continue
            if value.reader is None:
                value.reader = place
            found.append(value)
        return found

    def _hang_together(self, place: int, writers: Sequence[int]) -> None:
        """Join an execution with those whose values it is the first to read, the latest first."""
        left = list(writers)
        again = True
        while left and again:  # what joins one may be what another one branched off
            again = False
            for writer in list(left):
                if self._may_join(place, writer, is_first=writer == writers[0]):
                    self._unite(place, writer)
                    left.remove(writer)
                    again = True

    def _may_join(self, place: int, writer: int, *, is_first: bool) -> bool:
        mine, other = self._chains[self._root(place)], self._chains[self._root(writer)]
        if mine is other:
            return True
        if is_first and len(mine.places) == 1:
            # An operation that runs for all layers goes on with what came of it since; the state
            # that it left for another pass it left itself, and others ran after it.
            ran = self._ran.get(self._executions[place].top, -1)
            return writer > ran or other.last == writer or mine.tops.isdisjoint(other.tops)
        if mine.computes and other.computes and mine.tables & other.tables:
            return False  # each of them has embedded tokens: the one reads a state of the other
        older, younger = sorted((mine, other), key=lambda chain: chain.first)
        if any(self._chains[self._root(each)] is older for each in younger.behind):
            return True  # a branch comes back
        return mine.tops.isdisjoint(other.tops)

    def _root(self, place: int) -> int:
        while self._parents[place] != place:
            self._parents[place] = self._parents[self._parents[place]]
            place = self._parents[place]
        return place

    def _unite(self, one: int, other: int) -> None:
        first, second = self._root(one), self._root(other)
        if first == second:
            return
        if len(self._chains[first].places) < len(self._chains[second].places):
            first, second = second, first
        large, small = self._chains[first], self._chains[second]
        self._parents[second] = first
        large.places += small.places
        large.first = min(large.first, small.first)
        large.last = max(large.last, small.last)
        large.tops |= small.tops
        large.tables |= small.tables
        large.computes |= small.computes
        behind = {*large.behind, *small.behind}
        large.behind = [each for each in behind if self._root(each) != first]
