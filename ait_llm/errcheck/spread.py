"""From operations by themselves to the run: which odd value came from which, over all ranks.

Operations of a process are gone through in the order in which they ended. An odd input is known
again by how many elements it has and how many of them are odd; where that fails, it is put down to
everything that was born in its process before. Collectives take in what their peers put in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ait_llm.errcheck.events import Event, Mark, SeenPass
from ait_llm.errcheck.ranks import Meetings

Origin = Literal["born", "leak", "own code", "entered", "received", "padding", "unread"]
Key = tuple[int, int, str]
"""Process, order of the operation in it, and what began there."""
Taint = frozenset[Key]
_NONE: Taint = frozenset()
_HARMLESS = ("padding", "unread")


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where something odd began.

    Attributes:
        origin: in which way.
        event: the operation at which it shows first.
        around: for ``own code`` the index of the module whose own code did it, and for a ``leak``
            in such code; for ``entered`` the outermost one that received it.
    """

    origin: Origin
    event: Event
    around: int | None = None

    @property
    def key(self) -> Key:
        """What identifies it."""
        return (self.event.process, self.event.order, self.origin)


@dataclass(frozen=True, slots=True)
class Spread:
    """What came from where.

    Attributes:
        beginnings: all, by key.
        taints: for each event (process, order) the beginnings of what it handed on or received.
        copies: beginnings that several ranks share, by the key of the first: the processes.
    """

    beginnings: Mapping[Key, Beginning]
    taints: Mapping[tuple[int, int], Taint]
    copies: Mapping[Key, frozenset[int]]


def spread(processes: Sequence[Sequence[SeenPass]]) -> Spread:
    """Trace what is odd in all processes of a dump back to where it began."""
    meetings = Meetings(processes)
    taints: dict[tuple[int, int], Taint] = {}
    for _ in range(len(processes) + 2):  # each round carries taints one rank further
        walks = [_Walk(passes, meetings, taints) for passes in processes]
        for walk in walks:
            walk.go()
        found = {key: taint for walk in walks for key, taint in walk.taints.items()}
        settled = found == taints
        taints = found
        if settled:
            break
    beginnings = {key: one for walk in walks for key, one in walk.beginnings.items()}
    shared: dict[Key, set[int]] = {}
    for walk in walks:
        for key, process in walk.shared:
            shared.setdefault(key, {key[0]}).add(process)
    return Spread(beginnings, taints, {key: frozenset(each) for key, each in shared.items()})


class _Walk:
    """One process."""

    def __init__(
        self, passes: Sequence[SeenPass], meetings: Meetings, known: Mapping[tuple[int, int], Taint]
    ) -> None:
        self._passes = passes
        self._meetings = meetings
        self._known = known
        self.beginnings: dict[Key, Beginning] = {}
        self.taints: dict[tuple[int, int], Taint] = {}
        self.shared: list[tuple[Key, int]] = []
        self._of_mark: dict[Mark, Taint] = {}
        self._so_far: Taint = _NONE
        self._padding: Taint = _NONE

    def go(self) -> None:
        for one in self._passes:
            at = {event.op: event for event in one.events}
            for event in sorted(one.events, key=lambda each: _end(one, each)):
                taint = self._leaf(one, at, event) if event.is_leaf else self._module(one, event)
                self.taints[event.process, event.order] = taint
                for seen in event.odd_out:
                    self._of_mark[seen.reading.mark] = taint
                if event.kind not in ("padding", "stopped", "held"):
                    self._so_far |= taint

    def _leaf(self, one: SeenPass, at: Mapping[int, Event], event: Event) -> Taint:
        from_peers = self._from_peers(event)
        if event.kind == "born":
            return from_peers if from_peers else self._begin(self._arrival(event), event)
        sources = self._sources(event)
        if event.kind == "leak":
            return self._begin("leak", event) | sources
        if event.kind == "padding":
            self._padding = sources or self._padding or self._begin("padding", event)
            return sources or self._padding
        if event.kind == "held":
            return self._held(event)
        if event.kind == "passed" and sources and not from_peers:
            return sources | self._beyond(event, sources)
        if sources or from_peers:
            return sources | from_peers
        if event.kind == "stopped":
            return self._so_far or self._begin("unread", event)
        return self._so_far or self._from_code(one, at, event)

    def _held(self, event: Event) -> Taint:
        """What a cache holds that was written in a pass before, or never."""
        known: Taint = _NONE
        for seen in event.odd_out:
            known |= self._of_mark.get(seen.reading.mark, _NONE)
        return known or self._so_far or self._begin("unread", event)

    def _beyond(self, event: Event, sources: Taint) -> Taint:
        """A beginning, where what was harmless until here goes on as values of tokens."""
        if any(key[2] not in _HARMLESS for key in sources) or event.kind != "passed":
            return _NONE
        if any(seen.where == "tokens" for seen in event.odd_out):
            return self._begin("leak", event)
        if any(key[2] == "unread" for key in sources):
            return self._begin("entered", event)
        return _NONE

    def _arrival(self, event: Event) -> Origin:
        return "received" if self._meetings.lacks_peers(event) else "born"

    def _module(self, one: SeenPass, event: Event) -> Taint:
        """A module with captured parts is to blame only for what none of them did."""
        within = set(one.tree.members[event.op])
        inside: Taint = _NONE
        for other in one.events:
            if other.op in within:
                inside |= self.taints.get((other.process, other.order), _NONE)
        if event.kind not in ("born", "leak"):
            return inside | self._sources(event)
        serious = {"born", "leak", "own code", "received", "entered"}
        if any(key[2] in serious or key[0] != event.process for key in inside):
            return inside
        around = [each for each in self.beginnings.values() if each.around == event.op]
        if any(each.event.run is event.run for each in around):
            return inside
        from_peers = self._from_peers(event)
        return from_peers or self._begin("own code", event, event.op)

    def _sources(self, event: Event) -> Taint:
        found: Taint = _NONE
        for seen in event.odd_in:
            found |= self._of_mark.get(seen.reading.mark, _NONE)
        return found

    def _from_code(self, one: SeenPass, at: Mapping[int, Event], event: Event) -> Taint:
        """Nothing captured made it: the code of a module around did, or it came from outside."""
        if any(seen.parameter for seen in event.odd_in):
            return self._begin("entered", event)
        outermost: int | None = None
        # a graph has no code of its own: everything in it is an operation
        parent = one.tree.parents[event.op] if event.run.traits.own_code else None
        while parent is not None:
            around = at.get(parent)
            if around is None or around.kind in ("born", "leak") or not around.odd_in:
                leaks = around is not None and around.kind == "leak"
                return self._begin("leak" if leaks else "own code", event, parent)
            outermost = parent
            parent = one.tree.parents[parent]
        taint = self._begin("entered", event, outermost)
        for seen in event.odd_in:
            self._of_mark[seen.reading.mark] = taint
        return taint

    def _from_peers(self, event: Event) -> Taint:
        """What other ranks put into the same collective, or sent."""
        found: Taint = _NONE
        for peer in self._meetings.sources(event):
            taint = self._known.get((peer.process, peer.order), _NONE)
            if peer.kind == "born" and event.kind == "born":
                if peer.process < event.process:  # clean on all ranks: it began in this call
                    self.shared += [(key, event.process) for key in taint]
                    found |= taint
            else:
                found |= taint
        return found

    def _begin(self, origin: Origin, event: Event, around: int | None = None) -> Taint:
        beginning = Beginning(origin, event, around)
        self.beginnings[beginning.key] = beginning
        return frozenset((beginning.key,))


def _end(one: SeenPass, event: Event) -> tuple[int, int]:
    """When an operation ended: a module after its last part, inner modules before outer ones."""
    return (max(one.tree.members.get(event.op, (event.op,))), -event.op)
