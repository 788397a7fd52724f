"""Which token of which request each row of each pass is, for another run to compute the same.

What an engine wrote down tells it. Without that, the tokens do that passes read one after another.

A program that pads keeps one row of its batch for each request. One that packs puts the tokens of
several requests into one row of tokens: a request begins where positions begin again at 0, and its
later tokens go on at its next position, in whatever pass that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.program.logits import largest_logit
from ait_llm.program.one_pass import Pass
from ait_llm.program.proposals import needs_places, with_places
from ait_llm.program.readings import Reading
from ait_llm.program.schedule import EngineRequest, Schedule, Stretch
from ait_llm.program.token_ids import TokenIds

Row = tuple[int, int]
"""Number of a sequence of tokens in the plan, and place of the token in it."""

_MOST_WAYS = 2000
"""Ways of telling packed requests apart that are looked at in one pass."""


@dataclass(frozen=True, slots=True)
class PassRows:
    """The rows of one pass.

    Attributes:
        step: number of the pass in its process.
        shape: ``(rows,)`` of a pass that packs, ``(batch, length)`` of one that pads.
        rows: what each is, batch rows one behind the other; None for padding.
        newest: the rows whose logits it computes, in its order.
        schedule: what the engine said of the pass; None where none did.
        keys: of a pass that pads, which of all columns so far are tokens, ``(batch, columns)``.
    """

    step: int
    shape: tuple[int, ...]
    rows: tuple[Row | None, ...]
    newest: tuple[Row, ...]
    schedule: Schedule | None = None
    keys: tuple[tuple[bool, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What the passes of a process read.

    Attributes:
        requests: all tokens that each request read, its prompt first; what was proposed and not
            taken makes a sequence of its own.
        passes: in the order in which they ran.
        reason: why later passes are not among them; empty if all are.
        unsure: requests of batches that may be padded, which the capture does not show.
    """

    requests: tuple[tuple[int, ...], ...]
    passes: tuple[PassRows, ...]
    reason: str = ""
    unsure: frozenset[int] = frozenset()


def plan_rows(
    read: Sequence[Reading], requests: Mapping[str, EngineRequest] | None = None
) -> RowPlan:
    """The rows of the passes of a process, up to the first that cannot be told.

    Passes that read no token ids, such as those of an encoder of images, are left out.

    Args:
        read: the passes.
        requests: what an engine said of its requests, by name.
    """
    if needs_places(read):
        read = with_places(read)
    if any(each.run.schedule is not None for each in read):
        return _as_scheduled([each.run for each in read], requests or {})
    state = _State()
    passes: list[PassRows] = []
    generation = -1
    for each in read:
        ids = each.ids
        if ids is None:
            continue
        if each.generation != generation:
            generation = each.generation
            if ids.ids.ndim == 2 or ids.positions is None:
                state.active = []
        try:
            rows = _padded(ids, state) if ids.ids.ndim == 2 else _packed(each.run, ids, state)
        except _UnknownError as error:
            return RowPlan(state.tokens(), tuple(passes), f"step {each.run.step}: {error}")
        keys = tuple(map(tuple, state.keys.tolist())) if ids.ids.ndim == 2 else ()
        passes.append(_pass(each.run.step, tuple(ids.ids.shape), rows, keys))
    return RowPlan(state.tokens(), tuple(passes), unsure=frozenset(state.unsure))


def _pass(
    step: int,
    shape: tuple[int, ...],
    rows: Sequence[Row | None],
    keys: tuple[tuple[bool, ...], ...] = (),
) -> PassRows:
    """A pass that computes the logits of the last token of each request."""
    last: dict[int, Row] = {row[0]: row for row in rows if row is not None}
    return PassRows(step, shape, tuple(rows), tuple(last.values()), keys=keys)


def _as_scheduled(runs: Sequence[Pass], requests: Mapping[str, EngineRequest]) -> RowPlan:
    """What an engine said that its passes compute."""
    sequences: list[list[int]] = []
    homes: dict[str, int] = {}
    passes: list[PassRows] = []
    for run in runs:
        schedule = run.schedule
        if schedule is None or not schedule.stretches:
            continue
        rows: dict[int, Row] = {}
        for each in schedule.stretches:
            try:
                home = _home(each, sequences, homes, requests.get(each.request))
            except _UnknownError as error:
                reason = f"step {run.step}: {error}"
                return RowPlan(tuple(map(tuple, sequences)), tuple(passes), reason)
            rows |= {each.row + k: (home, each.first + k) for k in range(each.count)}
        places = sorted(rows)
        newest = tuple(rows[row] for row in schedule.newest)
        shape = (len(places),)
        passes.append(
            PassRows(run.step, shape, tuple(rows[row] for row in places), newest, schedule)
        )
    return RowPlan(tuple(map(tuple, sequences)), tuple(passes))


def _home(
    stretch: Stretch,
    sequences: list[list[int]],
    homes: dict[str, int],
    request: EngineRequest | None,
) -> int:
    """The sequence that the tokens of a stretch are part of, which grows by them.

    Tokens before it that no captured pass read, such as those of a cached prefix, are those of the
    request.

    Raises:
        _UnknownError: tokens of it, or before it, are not known.
    """
    tokens = list(stretch.tokens)
    if not tokens:
        raise _UnknownError(f"the tokens of request {stretch.request} are not in the capture")
    home = homes.get(stretch.request)
    known = [] if home is None else sequences[home]
    if len(known) < stretch.first and request is not None:
        known += request.tokens[len(known) : stretch.first]
    if len(known) < stretch.first:
        raise _UnknownError(
            f"the first {stretch.first} tokens of request {stretch.request} are not in the capture"
        )
    there = known[stretch.first : stretch.end]
    if home is None or there != tokens[: len(there)]:
        sequences.append([*known[: stretch.first], *tokens])
        home = homes[stretch.request] = len(sequences) - 1
    else:
        known += tokens[len(there) :]
    return home


class _UnknownError(Exception):
    """Which request a row belongs to cannot be told."""


@dataclass(slots=True)
class _State:
    """What was read so far.

    Attributes:
        requests: tokens of each.
        active: those of the pass before, in its order.
        last: the pass before, where it packs.
        keys: which columns of a padded batch are tokens, ``[batch, columns]``.
        unsure: requests of batches whose mask is not known.
    """

    requests: list[list[int]] = field(default_factory=list)
    active: list[int] = field(default_factory=list)
    last: Pass | None = None
    keys: Array = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    unsure: set[int] = field(default_factory=set)

    def begin(self) -> int:
        self.requests.append([])
        return len(self.requests) - 1

    def read(self, request: int, tokens: Sequence[int]) -> list[Row]:
        """Rows of further tokens of a request."""
        known = self.requests[request]
        start = len(known)
        known += tokens
        return [(request, place) for place in range(start, len(known))]

    def tokens(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(tuple, self.requests))


def _padded(ids: TokenIds, state: _State) -> list[Row | None]:
    """Rows of a padded batch: prompts, one further token each, or all of them once more."""
    batch, length = ids.ids.shape
    mask = ids.mask if ids.mask is not None else np.ones(ids.ids.shape, dtype=bool)
    if len(state.active) != batch:
        state.active = [state.begin() for _ in range(batch)]
        state.keys = np.zeros((batch, 0), dtype=bool)
    if ids.unsure:
        state.unsure |= {*state.active}
    found: list[Row | None] = []
    again = False
    for number in range(batch):
        request = state.active[number]
        kept = [int(token) for token in ids.ids[number][mask[number]]]
        known = state.requests[request]
        again = length > 1 and bool(known) and kept[: len(known)] == known  # without a cache
        if again:
            state.read(request, kept[len(known) :])
            rows = iter([(request, place) for place in range(len(kept))])
        else:
            rows = iter(state.read(request, kept))
        found += [next(rows) if is_token else None for is_token in mask[number]]
    state.keys = mask if again else np.concatenate([state.keys, mask], axis=1)
    return found


def _packed(run: Pass, ids: TokenIds, state: _State) -> list[Row | None]:
    if ids.positions is None:
        parts = _by_count(ids, state)
    else:
        parts = _by_positions(run, ids.ids, ids.positions, state)
    rows: list[Row | None] = []
    active = []
    start = 0
    for request, length in parts:
        own = state.begin() if request is None else request
        rows += state.read(own, ids.ids[start : start + length].tolist())
        active.append(own)
        start += length
    state.active, state.last = active, run
    return rows


_Part = tuple[int | None, int]
"""A request, None for one that begins, and how many rows of the pass are its own."""


def _by_count(ids: TokenIds, state: _State) -> list[_Part]:
    """Without positions: a prompt, or one further token of each request."""
    count = len(ids.ids)
    if not state.active:
        return [(None, count)]
    if count != len(state.active):
        raise _UnknownError(
            "several requests are packed and nothing tells them apart; capture their positions too"
        )
    return [(request, 1) for request in state.active]


def _by_positions(run: Pass, ids: Array, positions: Array, state: _State) -> list[_Part]:
    """The way to read the positions that keeps the requests of the pass before in their order.

    Where two ways are as good, the tokens decide, if the requests take their largest logits.

    Raises:
        _UnknownError: a request goes on that never began, or it cannot be told which one does.
    """
    ways = []
    for way in _ways([int(place) for place in positions], state):
        known = [part for part in way if part[0] is not None]
        if known == [(request, 1) for request in state.active]:
            return way  # one more token of each, in their order
        ways.append(way)
    if not ways:
        raise _UnknownError(_beginless(positions, state))
    costs = [_cost(way, state.active) for way in ways]
    found = [way for way, cost in zip(ways, costs, strict=True) if cost == min(costs)]
    if len(found) > 1 and state.last is not None:
        told = [way for way in found if _is_chosen(way, ids, state)]
        found = told or found
    if len(found) > 1 or len(ways) >= _MOST_WAYS:
        raise _UnknownError(
            "several requests go on at the same position and nothing tells which is which"
        )
    return found[0]


def _ways(positions: Sequence[int], state: _State) -> Iterator[list[_Part]]:
    """All ways to cut positions into beginnings of requests and continuations of known ones."""
    ends = {number: len(tokens) for number, tokens in enumerate(state.requests)}
    recent = [*state.active, *(number for number in reversed(ends) if number not in state.active)]
    count = 0

    def go_on(start: int, used: tuple[int, ...], parts: list[_Part]) -> Iterator[list[_Part]]:
        nonlocal count
        if start == len(positions):
            count += 1
            yield list(parts)
            return
        place = positions[start]
        run = 1
        while start + run < len(positions) and positions[start + run] == place + run:
            run += 1
        if place == 0:
            choices: list[int | None] = [None]
        else:
            choices = [each for each in recent if ends[each] == place and each not in used]
        for choice in choices:
            known = used if choice is None else (*used, choice)
            for length in _lengths(positions, start, run, choice, ends, known):
                if count >= _MOST_WAYS:
                    return
                yield from go_on(start + length, known, [*parts, (choice, length)])

    yield from go_on(0, (), [])


def _lengths(
    positions: Sequence[int],
    start: int,
    run: int,
    choice: int | None,
    ends: dict[int, int],
    used: tuple[int, ...],
) -> Iterator[int]:
    """How many rows may be of one request: all that count up, or up to where another goes on."""
    free = {end for each, end in ends.items() if each not in used and each != choice}
    yield from (
        length for length in range(1, run + 1) if length == run or positions[start + length] in free
    )


def _cost(way: Sequence[_Part], active: Sequence[int]) -> tuple[int, int, int]:
    """How unlikely a way is: requests paused, read several tokens, or changed places."""
    places = {request: place for place, request in enumerate(active)}
    known = [(request, length) for request, length in way if request is not None]
    order = [places[request] for request, _ in known if request in places]
    turned = sum(late < early for early, late in pairwise(order))
    return len(known) - len(order), sum(length - 1 for _, length in known), turned


def _is_chosen(way: Sequence[_Part], ids: Array, state: _State) -> bool:
    """True if each request reads what its last logits prefer."""
    assert state.last is not None
    start = 0
    for request, length in way:
        if request in state.active:
            place = state.active.index(request)
            wanted = largest_logit(state.last, place, len(state.active))
            if wanted is None or wanted != int(ids[start]):
                return False
        start += length
    return True


def _beginless(positions: Array, state: _State) -> str:
    ends = {len(tokens) for tokens in state.requests}
    first = next((int(place) for place in positions if place and int(place) not in ends), None)
    what = "a request goes on" if first is None else f"a request goes on at position {first}"
    return (
        f"{what} whose tokens before are not in the capture (a cached prefix, or a capture that "
        "begins later); capture from the first token on"
    )
