"""Passes whose rows are told as an engine tells its own: by request, and by place in it.

A plain program reads a prompt, and then one token after another. Others read several tokens that go
on from earlier ones: proposals that one pass makes sure of (assisted generation, prompt lookup), a
prompt in parts, the next turn of a conversation, or the tokens of several requests in one row
(continuous batching). Of proposals those are kept that the model would have chosen itself, and the
next pass begins behind them. All of it follows from the places of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.program.logits import count_of_logits, every_logit
from ait_llm.program.one_pass import Pass
from ait_llm.program.readings import Reading
from ait_llm.program.schedule import Schedule, Stretch, engine_schedules
from ait_llm.program.token_ids import token_ids
from ait_llm.program.token_places import lengths_of, places_of


@dataclass(frozen=True, slots=True)
class Proposed:
    """What one request read and chose.

    Attributes:
        prompt: the tokens that it began with.
        chosen: those that followed, as far as they are known.
    """

    prompt: tuple[int, ...]
    chosen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive tokens of one request in one row of tokens.

    Attributes:
        row: of the first.
        first: its place in the request.
        tokens: what is read.
        proposed: how many of them, at the end, may only be proposed.
    """

    row: int
    first: int
    tokens: tuple[int, ...]
    proposed: int = 0

    @property
    def end(self) -> int:
        """Place behind the last token."""
        return self.first + len(self.tokens)


@dataclass(slots=True)
class _Requests:
    """The requests that were read so far.

    Attributes:
        ends: how many tokens of each, by number.
        active: those of the pass before, in its order.
    """

    ends: list[int] = field(default_factory=list)
    active: list[int] = field(default_factory=list)

    def of(self, parts: Sequence[_Part]) -> list[int] | None:
        """The request that each part of a pass belongs to; None where that is not known."""
        found: list[int] = []
        known = len(self.ends)
        for part in parts:
            number = self._of(part, found, alone=len(parts) == 1)
            if number is None:
                del self.ends[known:]
                return None
            if number == len(self.ends):
                self.ends.append(0)
            found.append(number)
        for part, number in zip(parts, found, strict=True):
            self.ends[number] = part.end
        self.active = found
        return found

    def _of(self, part: _Part, used: Sequence[int], *, alone: bool) -> int | None:
        if not part.first:
            return len(self.ends)
        if alone and len(self.active) == 1 and part.first <= self.ends[self.active[0]]:
            return self.active[0]  # what was proposed before may not have been kept
        every = dict.fromkeys((*self.active, *range(len(self.ends))))
        fits = (each for each in every if self.ends[each] == part.first and each not in used)
        return next(fits, None)


def needs_places(read: Sequence[Reading]) -> bool:
    """True if any pass reads what a plain program does not."""
    if any(each.run.schedule is not None for each in read):
        return False  # an engine says itself what it computes
    if any(len(_calls(each.run)) > 1 for each in read):
        return True
    return any(_is_other(_parts_of(each)) for each in read)


def in_equal_calls(golden: Sequence[Reading], mine: Sequence[Reading]) -> bool:
    """True if passes of equal numbers are of as many calls of the model."""
    counts = {each.run.step: len(_calls(each.run)) for each in mine}
    return all(
        len(_calls(each.run)) == counts.get(each.run.step, len(_calls(each.run))) for each in golden
    )


def with_places(read: Sequence[Reading]) -> list[Reading]:
    """The same; passes of one row of tokens get a schedule, unless an engine wrote some.

    A prompt that was read in several calls of the model makes a pass of each.
    """
    if any(each.run.schedule is not None for each in read):
        return list(read)
    read = [part for each in read for part in _by_calls(each)]
    requests = _Requests()
    lines: list[dict[str, Any]] = []
    numbers: list[int] = []
    for place, each in enumerate(read):
        parts = _parts_of(each)
        before = len(requests.ends)
        owners = None if parts is None else requests.of(parts)
        if parts is None or owners is None:
            goes_on = place and each.generation == read[place - 1].generation
            numbers.append(numbers[-1] if goes_on else (numbers[-1] + 1 if numbers else 0))
            continue
        numbers.append(max(owners))
        for part, owner in zip(parts, owners, strict=True):
            if owner >= before:
                known = {"number": owner, "prompt": len(part.tokens) - part.proposed}
                name = _name(owner)
                lines.append(
                    {"kind": "request", "request": name, **known, "first": 0, "tokens": ()}
                )
        rows = [_row(part, owner) for part, owner in zip(parts, owners, strict=True)]
        lines.append({"kind": "schedule", "step": place, "rows": rows})
    schedules = engine_schedules(lines).passes
    return [
        replace(each, run=replace(each.run, schedule=schedules.get(place)), generation=number)
        for place, (each, number) in enumerate(zip(read, numbers, strict=True))
    ]


def proposed_requests(read: Sequence[Reading]) -> list[Proposed]:
    """The requests of passes that :func:`with_places` gave a schedule."""
    found: dict[str, list[tuple[Schedule, Stretch, Reading]]] = {}
    for each in read:
        schedule = each.run.schedule
        for stretch in () if schedule is None else schedule.stretches:
            assert schedule is not None
            found.setdefault(stretch.request, []).append((schedule, stretch, each))
    return [_proposed(passes) for passes in found.values()]


def _proposed(passes: Sequence[tuple[Schedule, Stretch, Reading]]) -> Proposed:
    stretches = [stretch for _, stretch, _ in passes]
    tokens: list[int] = []
    for each in stretches:
        tokens[each.first :] = each.tokens
    last = stretches[-1]
    del tokens[last.end - last.speculative :]
    prompt = _prompt(stretches)
    logits = [_logits(*each) for each in passes]
    pairs = zip(logits, stretches, stretches[1:], strict=False)
    if all(_is_largest(made, early, late) for made, early, late in pairs if late.first >= prompt):
        tokens += _kept(logits[-1], last)
    return Proposed(tuple(tokens[:prompt]), tuple(tokens[prompt:]))


def _prompt(stretches: Sequence[Stretch]) -> int:
    """Tokens of the prompt, which may be read in parts: all but the last are of several tokens."""
    end = stretches[0].end - stretches[0].speculative
    if not stretches[0].speculative:
        for each in stretches[1:]:
            if each.count == 1 or each.first != end or each.speculative:
                break
            end = each.end
    return end


def _logits(schedule: Schedule, stretch: Stretch, read: Reading) -> Array | None:
    """Logits of the last tokens of a stretch, ``[tokens, vocabulary]``."""
    every = every_logit(read.run)
    if every is None:
        return None
    if len(every) == schedule.count:
        return every[stretch.row : stretch.row + stretch.count]
    if len(schedule.stretches) == 1:
        return every
    place = schedule.stretches.index(stretch)
    return every[place : place + 1] if len(every) == len(schedule.stretches) else None


def _is_largest(logits: Array | None, early: Stretch, late: Stretch) -> bool:
    """True if the token behind what was kept of a pass is the largest logit there."""
    if logits is None:
        return False
    row = late.first - 1 - (early.end - len(logits))
    return 0 <= row < len(logits) and int(np.argmax(logits[row])) == late.tokens[0]


def _kept(logits: Array | None, last: Stretch) -> list[int]:
    """What a greedy program keeps of the proposals of its last pass, and the token behind them."""
    if logits is None or len(logits) <= last.speculative:
        return []
    wanted = [int(each) for each in np.argmax(logits[len(logits) - 1 - last.speculative :], -1)]
    proposed = last.tokens[len(last.tokens) - last.speculative :]
    kept: list[int] = []
    for given, token in zip((*proposed, None), wanted, strict=False):
        kept.append(token)
        if given != token:
            break
    return kept


def _name(request: int) -> str:
    return f"{request}.0"


def _row(part: _Part, owner: int) -> dict[str, Any]:
    row = {"request": _name(owner), "row": part.row, "first": part.first, "tokens": part.tokens}
    return {**row, "count": len(part.tokens), "speculative": part.proposed}


def _is_other(parts: Sequence[_Part] | None) -> bool:
    """True if a pass reads several requests, goes on with several tokens, or begins with some."""
    if parts is None:
        return False
    return len(parts) > 1 or any(
        each.proposed or (each.first and len(each.tokens) > 1) for each in parts
    )


def _calls(run: Pass) -> list[int]:
    """Where calls of the model begin among the operations of a pass; none where it is not there."""
    first = run.operations[0].name if run.operations else ""
    if "." in first:
        return []
    return [place for place, each in enumerate(run.operations) if each.name == first]


def _by_calls(read: Reading) -> list[Reading]:
    """A pass for each call of the model."""
    starts = _calls(read.run)
    if len(starts) < 2:
        return [read]
    ends = [*starts[1:], len(read.run.operations)]
    runs = [
        replace(
            read.run,
            operations=read.run.operations[start:end],
            first_order=read.run.first_order + start,
        )
        for start, end in zip(starts, ends, strict=True)
    ]
    return [replace(read, run=run, ids=token_ids(run)) for run in runs]


def _parts_of(read: Reading) -> list[_Part] | None:
    """What a pass of one row of tokens reads of which requests; None where that is not known."""
    ids = read.ids
    if ids is None or ids.ids.ndim != 2 or len(ids.ids) != 1:
        return None
    if ids.mask is not None and not ids.mask.all():
        return None
    tokens = tuple(int(token) for token in ids.ids[0])
    places = places_of(read.run, len(tokens))
    if places is None:
        return None
    parts = [
        _Part(start, int(places[start]), tokens[start:end])
        for start, end in _stretches(places, lengths_of(read.run, len(tokens)))
    ]
    if len(parts) > 1:
        return parts
    computed = min(count_of_logits(read.run) or 1, len(tokens))
    is_start = parts[0].first == 0 and computed == len(tokens)
    return [replace(parts[0], proposed=0 if is_start else computed - 1)]


def _stretches(places: Array, lengths: Sequence[int] | None) -> Iterator[tuple[int, int]]:
    """Where requests begin and end in a row: as said, else where places do not go on by one."""
    if lengths is not None:
        ends = [int(end) for end in np.cumsum(lengths)]
    else:
        ends = [*(int(each) + 1 for each in np.flatnonzero(np.diff(places) != 1)), len(places)]
    yield from zip([0, *ends], ends, strict=False)
