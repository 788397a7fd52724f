"""Which calls of other ranks a collective, or a received message, took its values from."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.dumps.model import Operation
from ait_llm.errcheck.events import Event, SeenPass
from ait_llm.errcheck.tree import function_name, is_collective, is_message

_Place = tuple[int, str, int]


class Meetings:
    """The calls of all processes by where they are, which is the same on all ranks.

    Args:
        processes: the passes of each process.
    """

    def __init__(self, processes: Sequence[Sequence[SeenPass]]) -> None:
        self._several = len(processes) > 1
        self._events: dict[_Place, list[Event]] = {}
        self._calls: dict[_Place, set[int]] = {}
        self._sent: list[Event] = []
        for process, passes in enumerate(processes):
            for one in passes:
                for event in one.events:
                    self._events.setdefault(_place(event), []).append(event)
                    if "send" in function_name(event.operation).lower():
                        self._sent.append(event)
                for operation in one.tree.run.operations:
                    if is_collective(operation):
                        place = (one.tree.run.step, operation.name, operation.call)
                        self._calls.setdefault(place, set()).add(process)

    def sources(self, event: Event) -> list[Event]:
        """Events of other ranks that what this one left may come from.

        Of a collective those that put something odd in, or, if no rank did, those at which it
        shows as well. A module is taken for a collective if another rank's left the same.
        """
        if not self._several or not event.odd_out:
            return []
        marks = {seen.reading.mark for seen in event.odd_out}
        if is_message(event.operation):
            return [
                sent
                for sent in self._sent
                if sent.process != event.process
                and sent.run.step == event.run.step
                and marks & {seen.reading.mark for seen in sent.odd_in}
            ]
        peers = [each for each in self._events[_place(event)] if each.process != event.process]
        if not is_collective(event.operation):
            if not event.run.traits.own_code or event.kind != "born":
                return []
            if not _is_module(event.operation):
                return []
            peers = [
                each for each in peers if marks == {seen.reading.mark for seen in each.odd_out}
            ]
        gave = [each for each in peers if each.odd_in]
        return gave or [each for each in peers if each.kind == "born"]

    def lacks_peers(self, event: Event) -> bool:
        """True if what was received may come from a rank that the dump does not have."""
        operation = event.operation
        if is_message(operation):
            return True
        if not is_collective(operation):
            return False
        size = operation.params.get("rankSize")
        there = self._calls.get(_place(event), {event.process})
        return len(there) < (size if isinstance(size, int) else 2)


def _is_module(operation: Operation) -> bool:
    """True for a module of PyTorch, whose code may communicate."""
    if operation.api_name:
        return operation.api_name.startswith("Module.")
    return "aten." not in operation.type


def _place(event: Event) -> _Place:
    return (event.run.step, event.operation.name, event.operation.call)
