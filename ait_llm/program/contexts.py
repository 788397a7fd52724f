"""What calls of paged attention read of earlier passes, as the schedule of an engine tells it.

A call gets the keys and values of its own rows; those of the tokens before them are in a cache that
no argument names. They are the arguments of the same module in the passes that computed these
tokens, perhaps of another request whose beginning was the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ait_llm.dumps.operations import Attended, CachedRows, Operation
from ait_llm.program.schedule import EngineSchedules, Stretch, prefix_keys

PAGED = frozenset({"Attention"})
"""Classes of modules that read keys and values of a request from a cache of pages."""
_MOST_CALLS = 64  # earlier ones that one call may read
_Place = tuple[int, int]  # step and row


@dataclass(frozen=True, slots=True)
class _Reading:
    """Rows of one request in one pass, and the places of the tokens before them, in order."""

    stretch: Stretch
    before: tuple[_Place, ...]


def with_contexts(
    operations: Sequence[Operation], schedules: EngineSchedules | None
) -> list[Operation]:
    """The same; paged attention gets what its rows attend to, as far as it was captured.

    Args:
        operations: of one process, their steps the passes of the engine.
        schedules: what the engine computed in it; None where no engine said so.
    """
    paged = [each for each in operations if each.type in PAGED]
    if schedules is None or not paged:
        return list(operations)
    readings = _readings(schedules)
    calls = {(each.step, each.name, each.call): each for each in paged}
    return [
        replace(each, attended=tuple(_attended(each, readings.get(each.step, ()), calls)))
        if each.type in PAGED
        else each
        for each in operations
    ]


def _attended(
    operation: Operation,
    readings: Iterable[_Reading],
    calls: Mapping[tuple[int, str, int], Operation],
) -> Iterator[Attended]:
    for reading in readings:
        rows: list[CachedRows] = []
        for step, row in reading.before:
            earlier = calls.get((step, operation.name, operation.call))
            if earlier is None:
                break
            last = rows[-1] if rows else None
            if last is not None and last.operation is earlier and row == last.row + last.count:
                rows[-1] = replace(last, count=last.count + 1)
            else:
                rows.append(CachedRows(earlier, row, 1))
        else:
            if len(rows) <= _MOST_CALLS:
                stretch = reading.stretch
                yield Attended(stretch.row, stretch.count, tuple(rows))


def _readings(schedules: EngineSchedules) -> dict[int, list[_Reading]]:
    """What is read in each pass; stretches of which a token's place is not known are left out."""
    cache = _Cache()
    found: dict[int, list[_Reading]] = {}
    for step in sorted(schedules.passes):
        for stretch in schedules.passes[step].stretches:
            request = schedules.requests.get(stretch.request)
            cache.take(stretch, () if request is None else request.tokens)
            before = cache.before(stretch)
            if before is not None:
                found.setdefault(step, []).append(_Reading(stretch, before))
            cache.put(stretch, step)  # all rows of a pass are in the cache before one is read
    return found


@dataclass(slots=True)
class _Cache:
    """Where the keys and values of each token of each request were computed.

    Attributes:
        slots: by request and position; None where nobody knows.
        written: places by what stands for a token and all before it; None where there are several.
    """

    slots: dict[str, dict[int, _Place | None]] = field(default_factory=dict)
    written: dict[int, _Place | None] = field(default_factory=dict)

    def take(self, stretch: Stretch, tokens: Sequence[int]) -> None:
        """Tokens that were found in the cache before a stretch was computed."""
        if not stretch.cached:
            return
        slots = self.slots.setdefault(stretch.request, {})
        keys = [*prefix_keys(tokens[: stretch.cached])]
        for position in range(stretch.cached):
            known = position < len(keys)
            slots[position] = self.written.get(keys[position]) if known else None

    def before(self, stretch: Stretch) -> tuple[_Place, ...] | None:
        """The places of all tokens before a stretch; None where one is not known."""
        slots = self.slots.get(stretch.request, {})
        found = [slots.get(position) for position in range(stretch.first)]
        places = tuple(each for each in found if each is not None)
        return places if len(places) == len(found) else None

    def put(self, stretch: Stretch, step: int) -> None:
        """Tokens that were computed."""
        slots = self.slots.setdefault(stretch.request, {})
        for number in range(stretch.count):
            place = step, stretch.row + number
            slots[stretch.first + number] = place
            if number < len(stretch.keys):
                key = stretch.keys[number]
                self.written[key] = None if key in self.written else place
