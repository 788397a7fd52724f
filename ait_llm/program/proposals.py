"""Passes that make sure of tokens which were only proposed, told as an engine tells its own.

In assisted generation and prompt lookup one pass reads the newest token and some proposed ones.
Those that the model would have chosen itself are kept, and the next pass begins behind them, at the
place of the first that it would not. So the places of all tokens have to be known, and that there
is one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ait_llm.program.logits import every_logit
from ait_llm.program.one_pass import Pass
from ait_llm.program.readings import Reading
from ait_llm.program.schedule import Schedule, Stretch, engine_schedules
from ait_llm.program.token_ids import first_place, token_ids


@dataclass(frozen=True, slots=True)
class Proposed:
    """What one generation with proposals read and chose.

    Attributes:
        prompt: the tokens that it began with.
        chosen: those that followed, as far as they are known.
    """

    prompt: tuple[int, ...]
    chosen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A pass of one request.

    Attributes:
        first: place of its first token.
        tokens: what it reads.
        computed: how many of them, at the end, it computes logits of.
    """

    first: int
    tokens: tuple[int, ...]
    computed: int

    @property
    def end(self) -> int:
        """Place behind its last token."""
        return self.first + len(self.tokens)

    @property
    def proposed(self) -> int:
        """How many tokens, at the end, may only be proposed."""
        is_start = self.first == 0 and self.computed == len(self.tokens)
        return 0 if is_start else max(0, self.computed - 1)


def needs_places(read: Sequence[Reading]) -> bool:
    """True if any pass goes on with several tokens, begins with some, or reads in several calls."""
    if any(each.run.schedule is not None for each in read):
        return False  # an engine says itself what it computes
    if any(len(_calls(each.run)) > 1 for each in read):
        return True
    placed = (_placed(each) for each in read)
    return any(each is not None and _proposes(each) for each in placed)


def in_equal_calls(golden: Sequence[Reading], mine: Sequence[Reading]) -> bool:
    """True if passes of equal numbers are of as many calls of the model."""
    counts = {each.run.step: len(_calls(each.run)) for each in mine}
    return all(
        len(_calls(each.run)) == counts.get(each.run.step, len(_calls(each.run))) for each in golden
    )


def with_places(read: Sequence[Reading]) -> list[Reading]:
    """The same; passes of one request each get a schedule, unless an engine wrote some.

    A prompt that was read in several calls of the model makes a pass of each.
    """
    if any(each.run.schedule is not None for each in read):
        return list(read)
    read = [part for each in read for part in _parts(each)]
    placed = [_placed(each) for each in read]
    lines: list[dict[str, Any]] = []
    numbers: list[int] = []
    for place, each in enumerate(placed):
        last = placed[place - 1] if place else None
        goes_on = each is not None and last is not None and 0 < each.first <= last.end
        if each is not None and each.first and not goes_on:
            each = placed[place] = None  # what came before is not in the capture
        plain = each is None and place and read[place].generation == read[place - 1].generation
        numbers.append((numbers[-1] if numbers else -1) + (not (goes_on or plain)))
        if each is None:
            continue
        name = f"{numbers[-1]}.0"
        if not goes_on:
            known = {"number": numbers[-1], "prompt": len(each.tokens) - each.proposed}
            lines.append({"kind": "request", "request": name, **known, "first": 0, "tokens": ()})
        row = {"request": name, "first": each.first, "count": len(each.tokens)}
        row |= {"tokens": each.tokens, "speculative": each.proposed}
        lines.append({"kind": "schedule", "step": place, "rows": [row]})
    schedules = engine_schedules(lines).passes
    return [
        replace(
            each,
            run=replace(each.run, schedule=None if one is None else schedules[place]),
            generation=number,
        )
        for place, (each, one, number) in enumerate(zip(read, placed, numbers, strict=True))
    ]


def proposed_requests(read: Sequence[Reading]) -> list[Proposed]:
    """The generations of passes that :func:`with_places` gave a schedule."""
    found: dict[str, list[tuple[Reading, Schedule]]] = {}
    for each in read:
        if each.run.schedule is not None:
            name = each.run.schedule.stretches[0].request
            found.setdefault(name, []).append((each, each.run.schedule))
    return [_proposed(passes) for passes in found.values()]


def _proposed(passes: Sequence[tuple[Reading, Schedule]]) -> Proposed:
    stretches = [schedule.stretches[0] for _, schedule in passes]
    tokens: list[int] = []
    for each in stretches:
        tokens[each.first :] = each.tokens
    prompt = stretches[0].count - stretches[0].speculative
    last = stretches[-1]
    del tokens[last.end - last.speculative :]
    if all(_is_largest(one[0], early, late) for one, early, late in _pairs(passes, stretches)):
        tokens += _kept(passes[-1][0], last)
    return Proposed(tuple(tokens[:prompt]), tuple(tokens[prompt:]))


def _pairs(
    passes: Sequence[tuple[Reading, Schedule]], stretches: Sequence[Stretch]
) -> list[tuple[tuple[Reading, Schedule], Stretch, Stretch]]:
    return list(zip(passes, stretches, stretches[1:], strict=False))


def _is_largest(read: Reading, early: Stretch, late: Stretch) -> bool:
    """True if the token behind what was kept of a pass is the largest logit there."""
    logits = every_logit(read.run)
    if logits is None:
        return False
    row = late.first - 1 - (early.end - len(logits))
    return 0 <= row < len(logits) and int(np.argmax(logits[row])) == late.tokens[0]


def _kept(read: Reading, last: Stretch) -> list[int]:
    """What a greedy program keeps of the proposals of its last pass, and the token behind them."""
    logits = every_logit(read.run)
    if logits is None or len(logits) <= last.speculative:
        return []
    wanted = [int(each) for each in np.argmax(logits[len(logits) - 1 - last.speculative :], -1)]
    kept: list[int] = []
    for proposed, token in zip((*last.tokens[-last.speculative :], None), wanted, strict=False):
        kept.append(token)
        if proposed != token:
            break
    return kept


def _proposes(placed: _Placed) -> bool:
    length = len(placed.tokens)
    return length > 1 and (placed.first > 0 or 1 < placed.computed < length)


def _calls(run: Pass) -> list[int]:
    """Where calls of the model begin among the operations of a pass; none where it is not there."""
    first = run.operations[0].name if run.operations else ""
    if "." in first:
        return []
    return [place for place, each in enumerate(run.operations) if each.name == first]


def _parts(read: Reading) -> list[Reading]:
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


def _placed(read: Reading) -> _Placed | None:
    ids = read.ids
    if ids is None or ids.ids.ndim != 2 or len(ids.ids) != 1:
        return None
    if ids.mask is not None and not ids.mask.all():
        return None
    tokens = tuple(int(token) for token in ids.ids[0])
    first = first_place(read.run, len(tokens))
    logits = every_logit(read.run)
    if first is None:
        return None
    return _Placed(first, tokens, 1 if logits is None else min(len(logits), len(tokens)))
