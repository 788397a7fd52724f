"""Where two runs that generate chose different tokens: what follows are different programs' data.

A generating program reads what it chose. Two healthy runs of different precision choose
differently sooner or later, and from there on every value differs without a fault of any operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from ait_llm.program.logits import largest_logit
from ait_llm.program.one_pass import LeftOut, Pass
from ait_llm.program.readings import Reading, generations, is_greedy

PassPair = tuple[Pass, Pass]


@dataclass(frozen=True, slots=True)
class Parting:
    """The first choice in which two runs of one prompt differ.

    Attributes:
        golden, mine: the passes whose logits the tokens were chosen from; None where the capture
            leaves out passes before those that read them.
        read: the passes that read them; only one where the other side ended with its choice.
        requests: number of the request on each side.
        counts: how many requests the passes have on each side.
        tokens: what golden chose and what mine chose.
        steps: my steps, else golden's, that are not compared because of it.
        alone: the other requests of these steps go on being compared.
    """

    golden: Pass | None
    mine: Pass | None
    read: tuple[Pass | None, Pass | None]
    requests: tuple[int, int]
    counts: tuple[int, int]
    tokens: tuple[int, int]
    steps: tuple[int, ...] = ()
    alone: bool = False

    @property
    def ended(self) -> str:
        """The side whose generation ended with its choice; empty if neither did."""
        return "golden" if self.read[0] is None else "mine" if self.read[1] is None else ""


@dataclass(frozen=True, slots=True)
class Parted:
    """What partings leave of the passes of two processes.

    Attributes:
        partings: at most one for each request of each generation, in the order of their steps.
        behind: ids of all passes of either side of which nothing is left to compare.
        without: what is not compared of other passes, by the id of my pass.
    """

    partings: tuple[Parting, ...]
    behind: frozenset[int]
    without: Mapping[int, LeftOut]


def by_generation(golden: Sequence[Reading], mine: Sequence[Reading]) -> list[PassPair] | None:
    """Passes by generation and place in it; None where counting them through says the same.

    A run that ends a generation early counts all later passes otherwise. Generations belong
    together if they begin with the same prompt.
    """
    sides = generations(golden), generations(mine)
    both = list(zip(*sides, strict=False))
    if all(len(ours) == len(theirs) for ours, theirs in both[:-1]):
        return None
    for ours, theirs in both:
        if _same_requests((ours[0], theirs[0])) is None:
            return None
    return [
        (first.run, second.run)
        for ours, theirs in both
        for first, second in zip(ours, theirs, strict=False)
    ]


def find_partings(
    golden: Sequence[Reading], mine: Sequence[Reading], pairs: Sequence[PassPair]
) -> Parted:
    """Where the tokens of pairs of passes part.

    Args:
        golden, mine: all passes of the two processes.
        pairs: those that belong together, in the order in which they ran.
    """
    known = {id(each.run): each for each in (*golden, *mine)}
    partings: list[Parting] = []
    behind: set[int] = set()
    without: dict[int, LeftOut] = {}
    read = [(known[id(ours)], known[id(theirs)]) for ours, theirs in pairs]
    for _, group in groupby(read, lambda each: (each[0].generation, each[1].generation)):
        passes = list(group)
        told = [each for each in passes if each[0].ids is not None and each[1].ids is not None]
        rows = _same_requests(told[0]) if told else None
        if not rows:
            continue
        found = _partings(told, rows)
        ending = None if found else _ending(told, rows, (golden, mine))
        if ending is not None:
            found = [ending]
        if not found:
            continue
        end, left_out = (None, {}) if ending is not None else _left(told, rows, found)
        gone = _gone((golden, mine), told, found[0] if ending is not None else None, end)
        behind |= {id(each.run) for side in gone for each in side}
        if left_out:  # passes that read no ids have rows of nobody knows whom
            begun = next(place for place, each in enumerate(passes) if id(each[1].run) in left_out)
            untold = [each for each in passes[begun:] if None in (each[0].ids, each[1].ids)]
            behind |= {id(one.run) for each in untold for one in each}
        without |= left_out
        partings += [_with_steps(each, told, gone, alone=bool(left_out)) for each in found]
    return Parted(tuple(partings), frozenset(behind), without)


def _partings(
    read: Sequence[tuple[Reading, Reading]], rows: Sequence[tuple[int, int]]
) -> list[Parting]:
    """The first passes of a generation whose newest tokens differ, for each request."""
    found: dict[tuple[int, int], Parting] = {}
    for early, late in pairwise(read):
        ours, theirs = late[0].newest, late[1].newest
        for row in rows:
            if row in found or row[0] >= len(ours) or row[1] >= len(theirs):
                continue
            if ours[row[0]] != theirs[row[1]]:
                made = _directly(early[0], late[0]), _directly(early[1], late[1])
                counts, tokens = (len(ours), len(theirs)), (ours[row[0]], theirs[row[1]])
                found[row] = Parting(*made, (late[0].run, late[1].run), row, counts, tokens)
    return list(found.values())


def _left(
    read: Sequence[tuple[Reading, Reading]], rows: Sequence[tuple[int, int]], found: list[Parting]
) -> tuple[int, dict[int, LeftOut]]:
    """From which pair on nothing can be compared, and what is left out of those before.

    Drops partings behind that pair: nobody knows whose tokens those are.
    """
    first = next(place for place, each in enumerate(read) if each[1].run is found[0].read[1])
    begun = {id(each.read[1]): 0 for each in found}
    in_order = all(ours == theirs for ours, theirs in rows)
    count = len(read[first][1].newest)
    parted: set[int] = set()
    without: dict[int, LeftOut] = {}
    for place, (ours, theirs) in enumerate(read[first:], start=first):
        if id(theirs.run) in begun:
            parted |= {each.requests[1] for each in found if each.read[1] is theirs.run}
        if len(parted) == count or not (in_order and _is_separable(ours, theirs, count)):
            late = {id(each[1].run) for each in read[place + 1 :]}
            found[:] = [each for each in found if id(each.read[1]) not in late]
            return place, without
        assert theirs.ids is not None
        padded = theirs.ids.ids.ndim == 2
        length = theirs.ids.ids.shape[1] if padded else 1
        without[id(theirs.run)] = LeftOut(frozenset(parted), count, length, padded)
    return len(read), without


def _is_separable(golden: Reading, mine: Reading, count: int) -> bool:
    """True if both passes hold the same requests at the same places, one row or run each."""
    one, other = golden.ids, mine.ids
    return (
        one is not None
        and other is not None
        and one.ids.shape == other.ids.shape
        and len(golden.newest) == len(mine.newest) == count > 1
    )


def _gone(
    sides: tuple[Sequence[Reading], Sequence[Reading]],
    read: Sequence[tuple[Reading, Reading]],
    ending: Parting | None,
    end: int | None,
) -> list[list[Reading]]:
    """The passes of each side of which nothing is compared."""
    gone = []
    for side, number in zip(sides, (0, 1), strict=True):
        if ending is not None:
            begin = ending.read[number]
        else:
            assert end is not None
            begin = read[end][number].run if end < len(read) else None
            if begin is None:  # what one side alone goes on with is of requests that parted
                later = _next(side, read[-1][number])
                begin = None if later is None else later.run
        gone.append(_behind(side, read[0][number].generation, begin))
    return gone


def _with_steps(
    parting: Parting,
    read: Sequence[tuple[Reading, Reading]],
    gone: Sequence[Sequence[Reading]],
    *,
    alone: bool,
) -> Parting:
    """The parting, with the steps that are not compared because of it."""
    steps = [each.run.step for each in max(reversed(gone), key=len)]
    places = [place for place, each in enumerate(read) if each[1].run is parting.read[1]]
    own: list[int] = []
    if parting.read[1] is not None and places:
        own = [each[1].run.step for each in read[places[0] :]]
    every = tuple(sorted({*own, *steps}))
    return replace(parting, steps=every, alone=alone and bool({*own} - {*steps}))


def _ending(
    read: Sequence[tuple[Reading, Reading]],
    rows: Sequence[tuple[int, int]],
    sides: tuple[Sequence[Reading], Sequence[Reading]],
) -> Parting | None:
    """The end of a generation on one side alone, where its logits say that it chose otherwise."""
    if not rows:
        return None
    last = read[-1]
    later = [_next(side, each) for side, each in zip(sides, last, strict=True)]
    if (later[0] is None) == (later[1] is None):
        return None
    longer = 0 if later[0] is not None else 1
    shorter = 1 - longer
    goes_on = later[longer]
    assert goes_on is not None
    chosen = goes_on.newest
    own = [each[shorter] for each in read]
    for row in rows:
        counts = len(read[-1][0].newest), len(read[-1][1].newest)
        token = largest_logit(own[-1].run, row[shorter], counts[shorter])
        if token is None or row[longer] >= len(chosen) or token == chosen[row[longer]]:
            continue
        if is_greedy(own, row[shorter]):
            tokens = (chosen[row[0]], token) if longer == 0 else (token, chosen[row[1]])
            ends = (goes_on.run, None) if longer == 0 else (None, goes_on.run)
            return Parting(last[0].run, last[1].run, ends, row, counts, tokens)
    return None


def _next(side: Sequence[Reading], read: Reading) -> Reading | None:
    """The pass behind one, in its generation and with nothing missing between."""
    for each in side:
        if each.run.step == read.run.step + 1 and each.generation == read.generation:
            return each
    return None


def _behind(side: Sequence[Reading], generation: int, run: Pass | None) -> list[Reading]:
    """A pass and those after it in its generation; nothing without one."""
    if run is None:
        return []
    return [each for each in side if each.generation == generation and each.run.step >= run.step]


def _directly(before: Reading, read: Reading) -> Pass | None:
    """The pass before, if nothing is missing between."""
    return before.run if before.run.step + 1 == read.run.step else None


def _same_requests(pair: tuple[Reading, Reading]) -> list[tuple[int, int]] | None:
    """Which request of golden is which of mine, by their prompts; None if none is."""
    golden, mine = pair[0].ids, pair[1].ids
    if golden is None or mine is None:
        return None
    ours, theirs = golden.prompts(), mine.prompts()
    if golden.ids.ndim != mine.ids.ndim:  # packed and padded: all of them, in the same order
        count = max(len(ours), len(theirs))
        return [(row, row) for row in range(count)] if _flat(ours) == _flat(theirs) else None
    if golden.ids.ndim == 1:
        return [(row, row) for row in range(len(golden.ids))] if ours == theirs else None
    free = list(enumerate(theirs))
    found = []
    for row, prompt in enumerate(ours):
        place = next((place for place, each in enumerate(free) if each[1] == prompt), None)
        if place is not None:
            found.append((row, free.pop(place)[0]))
    return found or None


def _flat(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(token for prompt in prompts for token in prompt)
