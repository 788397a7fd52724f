"""What two processes that an engine scheduled do not share: partings, and tokens of one side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ait_llm.core import Problem
from ait_llm.match.partings import Parting
from ait_llm.match.scheduled import Alone, Scheduled
from ait_llm.program.one_pass import Pass
from ait_llm.program.schedule import Stretch

_SHOWN = 8  # requests that are named


def find_partings(found: Scheduled) -> list[Parting]:
    """Where golden and mine chose different tokens for one request, at most once for each."""
    partings = []
    for request, missing in _by_request(found.alone).items():
        first = min(missing, key=lambda each: each.stretch.first)
        parting = _parting(found, request, first, missing)
        if parting is not None:
            partings.append(parting)
    return sorted(partings, key=lambda each: each.steps[0])


def _parting(
    found: Scheduled, request: str, first: Alone, missing: Sequence[Alone]
) -> Parting | None:
    """The choice before the first token that golden does not have, if golden has another there."""
    place = first.stretch.first
    partner = found.partners.get(request)
    if partner is None or not place or not first.stretch.tokens:
        return None
    golden = _read(found.golden, partner, place)
    before = _read(found.golden, partner, place - 1)
    mine = _read(found.mine, request, place - 1)
    if golden is None or not golden[1].tokens:
        return None
    token = golden[1].tokens[place - golden[1].first]
    if token == first.stretch.tokens[0]:
        return None  # other tokens before it, which the captures do not have
    requests = _number(before, partner), _number(mine, request)
    counts = _requests(before), _requests(mine)
    steps = tuple(sorted({each.mine.step for each in missing}))
    return Parting(
        None if before is None else before[0],
        None if mine is None else mine[0],
        (golden[0], first.mine),
        requests,
        counts,
        (token, first.stretch.tokens[0]),
        steps,
        alone=any(len(_stretches(found.mine, each.mine)) > 1 for each in missing),
    )


def rest_problems(found: Scheduled, partings: Sequence[Parting]) -> Iterator[Problem]:
    """What is not compared because only one side computes it; a parting says so of its own."""
    told = {each.steps[0]: each for each in partings}
    unknown: list[str] = []
    for request, missing in _by_request(found.alone).items():
        first = min(missing, key=lambda each: each.stretch.first)
        parting = told.get(first.mine.step)
        if parting is not None and parting.tokens[1] in first.stretch.tokens[:1]:
            continue
        if request not in found.partners:
            unknown.append(request)
            continue
        last = max(missing, key=lambda each: each.stretch.end)
        yield Problem(
            "mine",
            f"request {request}: golden does not have its tokens {first.stretch.first} to "
            f"{last.stretch.end - 1} behind the same tokens; they were not compared",
            decides=False,
        )
    if unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        which = "request" if len(unknown) == 1 else "requests"
        yield Problem(
            "mine",
            f"golden does not have {which} {', '.join(unknown[:_SHOWN])}{more}; "
            "nothing of it was compared",
            decides=False,
        )


def _by_request(alone: Sequence[Alone]) -> dict[str, list[Alone]]:
    found: dict[str, list[Alone]] = defaultdict(list)
    for each in alone:
        found[each.stretch.request].append(each)
    return found


_Side = Sequence[tuple[Pass, Sequence[Stretch]]]


def _read(side: _Side, request: str, place: int) -> tuple[Pass, Stretch] | None:
    """The first pass that computes the token of a request at a position.

    Where it was only proposed, the last one does: what was not taken is computed anew.
    """
    found = None
    for run, stretches in side:
        for each in stretches:
            if each.request == request and each.first <= place < each.end:
                if place < each.end - each.speculative:
                    return run, each
                found = run, each
    return found


def _stretches(side: _Side, wanted: Pass) -> Sequence[Stretch]:
    return next((stretches for run, stretches in side if run is wanted), ())


def _number(read: tuple[Pass, Stretch] | None, request: str) -> int:
    """Which row of logits a pass computes for a request."""
    if read is None:
        return 0
    schedule = read[0].schedule
    if schedule is None:
        return int(request.rpartition(".")[2])
    last = read[1].row + read[1].count - 1
    return schedule.newest.index(last) if last in schedule.newest else 0


def _requests(read: tuple[Pass, Stretch] | None) -> int:
    if read is None:
        return 1
    schedule = read[0].schedule
    return 1 if schedule is None else len(schedule.newest)
