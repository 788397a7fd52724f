"""Passes that belong together by the tokens that they compute, where an engine says which.

An engine computes several requests in one pass and one prompt in several; a plain program computes
them otherwise. What answers each other is a row: the same token behind the same tokens. A pass of
mine is therefore paired with each pass of golden that shares rows with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ait_llm.program.one_pass import Pass
from ait_llm.program.padded_requests import stretches_of
from ait_llm.program.readings import Reading, generations
from ait_llm.program.schedule import Stretch

_PADDED = 2  # axes of the tokens of a batch
_Place = tuple[int, int]  # number of a pass, and a flat row of it


@dataclass(frozen=True, slots=True)
class Shared:
    """Rows of a pass of each side that are the same tokens.

    Attributes:
        golden, mine: the passes, which know these rows.
    """

    golden: Pass
    mine: Pass


@dataclass(frozen=True, slots=True)
class Alone:
    """Tokens of mine that golden does not have.

    Attributes:
        mine: the pass that computes them.
        stretch: them.
    """

    mine: Pass
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class Scheduled:
    """All that two processes share.

    Attributes:
        pairs: in the order of my passes.
        alone: what golden does not have of them.
        partners: what golden calls each request of mine that it has.
        golden, mine: all passes with what they compute.
    """

    pairs: tuple[Shared, ...]
    alone: tuple[Alone, ...]
    partners: Mapping[str, str]
    golden: tuple[tuple[Pass, tuple[Stretch, ...]], ...]
    mine: tuple[tuple[Pass, tuple[Stretch, ...]], ...]


def by_schedule(golden: Sequence[Reading], mine: Sequence[Reading]) -> Scheduled | None:
    """The rows that two processes share.

    Args:
        golden, mine: the passes of both, in the order in which they ran.

    Returns:
        None where no engine says what its passes compute, and requests are answered in the same
        batches.
    """
    said = any(each.run.schedule is not None for each in (*golden, *mine))
    if not said and not are_in_other_batches(golden, mine):
        return None
    ours, theirs = stretches_of(golden), stretches_of(mine)
    if not (any(ours) and any(theirs)):
        return None
    rows = _by_key(ours)
    partners = _partners(ours, theirs)
    pairs: list[Shared] = []
    alone: list[Alone] = []
    sure = _sure(theirs)
    for number, stretches in enumerate(theirs):
        shared: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in stretches:
            partner = partners.get(each.request)
            missing: list[int] = []
            for offset, key in enumerate(each.keys):
                found = rows.get((partner, key)) or rows.get((None, key))
                if found is None and each.first + offset < sure[number, each.row]:
                    missing.append(offset)
                elif found is None:
                    continue  # a proposal that nobody took
                else:
                    shared[found[0]].append((found[1], each.row + offset))
            alone += _alone(mine[number].run, each, missing)
        pairs += [
            _with_rows(golden[place].run, mine[number].run, sorted(shared[place]))
            for place in sorted(shared)
        ]
    sides = [
        tuple((each.run, stretches) for each, stretches in zip(side, made, strict=True))
        for side, made in ((golden, ours), (mine, theirs))
    ]
    return Scheduled(tuple(pairs), tuple(alone), partners, sides[0], sides[1])


def are_in_other_batches(golden: Sequence[Reading], mine: Sequence[Reading]) -> bool:
    """True if one side answers at once what the other answers one after the other.

    Rows that read the same are beams of one request, whose order a search changes.
    """
    sides = [_prompts(golden), _prompts(mine)]
    if None in sides or len(sides[0] or ()) == len(sides[1] or ()):
        return False
    ours, theirs = ({prompt for batch in side or () for prompt in batch} for side in sides)
    batches = [batch for side in sides for batch in side or ()]
    several = any(len(batch) > 1 for batch in batches)
    differ = all(len(set(batch)) == len(batch) for batch in batches)
    return several and differ and (ours <= theirs or theirs <= ours)


def _prompts(read: Sequence[Reading]) -> list[list[tuple[int, ...]]] | None:
    """The prompts of each generation; None where they are not known, or packed."""
    first = [each[0].ids for each in generations(read)]
    known = [each for each in first if each is not None and each.ids.ndim == _PADDED]
    return [each.prompts() for each in known] if len(known) == len(first) else None


def _with_rows(golden: Pass, mine: Pass, rows: Sequence[tuple[int, int]]) -> Shared:
    """The passes, which know their common rows."""
    turned = tuple(sorted((other, own) for own, other in rows))
    return Shared(replace(golden, same_rows=tuple(rows)), replace(mine, same_rows=turned))


def _by_key(passes: Sequence[Sequence[Stretch]]) -> dict[tuple[str | None, int], _Place]:
    """Where each token of each request is first computed, and of any request under None.

    What one request finds in a prefix cache was computed for another one.
    """
    found: dict[tuple[str | None, int], _Place] = {}
    for number, stretches in enumerate(passes):
        for each in stretches:
            for offset, key in enumerate(each.keys):
                for name in (each.request, None):
                    found.setdefault((name, key), (number, each.row + offset))
    return found


def _sure(passes: Sequence[Sequence[Stretch]]) -> dict[_Place, int]:
    """Up to where the tokens of each stretch became those of its request.

    Proposals became so up to where a later pass goes on.
    """
    found: dict[_Place, int] = {}
    following: dict[str, int] = {}
    for number in range(len(passes) - 1, -1, -1):
        for each in reversed(passes[number]):
            certain = each.end - each.speculative
            later = following.get(each.request, certain)
            found[number, each.row] = max(certain, min(each.end, later))
            following[each.request] = each.first
    return found


def _partners(
    golden: Sequence[Sequence[Stretch]], mine: Sequence[Sequence[Stretch]]
) -> dict[str, str]:
    """What golden calls each request of mine: the one of its name, else that of most its tokens."""
    owners: dict[int, list[str]] = defaultdict(list)
    for each in _each(golden):
        for key in each.keys:
            if each.request not in owners[key]:
                owners[key].append(each.request)
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for each in _each(mine):
        for key in each.keys:
            votes[each.request].update(owners.get(key, ()))
    return {
        name: name if name in counts else counts.most_common(1)[0][0]
        for name, counts in votes.items()
        if counts
    }


def _each(passes: Sequence[Sequence[Stretch]]) -> Iterator[Stretch]:
    for stretches in passes:
        yield from stretches


def _alone(run: Pass, stretch: Stretch, missing: Sequence[int]) -> Iterator[Alone]:
    """The tokens of a stretch that golden does not have, from the first to the last."""
    if not stretch.keys:
        yield Alone(run, stretch)
    elif missing:
        first, count = missing[0], missing[-1] - missing[0] + 1
        yield Alone(
            run,
            replace(
                stretch,
                row=stretch.row + first,
                first=stretch.first + first,
                count=count,
                tokens=stretch.tokens[first : first + count],
                keys=stretch.keys[first : first + count],
            ),
        )
