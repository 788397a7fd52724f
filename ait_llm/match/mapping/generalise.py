"""Lines about one layer as lines about all: numbers that go together become ``{i}``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ait_llm.match.mapping.drafts import Draft, DraftSide, Proven

_NUMBER = re.compile(r"(?<!\\)(0|[1-9][0-9]{0,8})(?![0-9])")
_VARIABLES = "ijklmnabcdefgh"

Prove = Callable[[Draft], Proven | None]
Numbers = tuple[int, ...]


class _Skeleton(NamedTuple):
    """A line with its numbers taken out.

    Attributes:
        texts: between the numbers.
        golden: how many numbers are golden's.
        tensors: which numbers are of names of tensors.
    """

    texts: tuple[str, ...]
    golden: int
    tensors: frozenset[int]


def generalised(drafts: Sequence[Draft], prove: Prove) -> Iterator[Proven]:
    """Lines that say together what single ones say, with numbers for what holds for all layers."""
    groups: dict[_Skeleton, dict[Numbers, Draft]] = defaultdict(dict)
    for draft in drafts:
        skeleton, numbers = _taken_apart(draft)
        groups[skeleton].setdefault(numbers, draft)
    for skeleton, rows in groups.items():
        yield from _lines(skeleton, rows, prove)


def _lines(skeleton: _Skeleton, rows: dict[Numbers, Draft], prove: Prove) -> Iterator[Proven]:
    if len(rows) > 1:
        found = _whole(skeleton, rows, prove)
        if found is not None:
            yield found
            return
        for part in _split(list(rows), skeleton):
            yield from _lines(skeleton, {row: rows[row] for row in part}, prove)
        return
    alone = prove(next(iter(rows.values())))
    if alone is not None:
        yield alone


def _whole(skeleton: _Skeleton, rows: dict[Numbers, Draft], prove: Prove) -> Proven | None:
    columns = list(zip(*rows, strict=True))
    texts: list[str] = []
    known: dict[Numbers, str] = {}
    for column in columns:
        if len(set(column)) == 1:
            texts.append(str(column[0]))
            continue
        # what goes up and down with an earlier column is the same number, perhaps with an offset
        steps = tuple(value - column[0] for value in column)
        if steps not in known:
            if len(known) == len(_VARIABLES):
                return None
            known[steps] = f"{_VARIABLES[len(known)]} {column[0]}"
        name, first = known[steps].split()
        offset = column[0] - int(first)
        texts.append("{" + name + (f"{offset:+d}" if offset else "") + "}")
    sample = next(iter(rows.values()))
    return prove(_put_together(skeleton, texts, sample))


def _split(rows: Sequence[Numbers], skeleton: _Skeleton) -> list[list[Numbers]]:
    """By a column that no column of the other side follows; by one with few values, and of mine.

    Names of tensors come apart before those of operations: what holds for some tensors of a layer
    holds for all layers.
    """
    golden = skeleton.golden
    columns = list(zip(*rows, strict=True))
    steps = [tuple(value - column[0] for value in column) for column in columns]
    sides = set(steps[:golden]), set(steps[golden:])

    def rank(place: int) -> tuple[bool, bool, int, bool, int]:
        is_followed = steps[place] in sides[place < golden]
        is_tensor = place in skeleton.tensors
        return is_followed, not is_tensor, len(set(columns[place])), place < golden, -place

    chosen = min((place for place in range(len(columns)) if any(steps[place])), key=rank)
    parts: dict[int, list[Numbers]] = defaultdict(list)
    for row in rows:
        parts[row[chosen]].append(row)
    return list(parts.values())


def _taken_apart(draft: Draft) -> tuple[_Skeleton, Numbers]:
    texts: list[str] = []
    numbers: list[int] = []
    counts: list[int] = []
    tensors: set[int] = set()
    for side in (draft.golden, draft.mine):
        for text, has_numbers in _fields(side):
            found = _NUMBER.split(text) if has_numbers else [text]
            texts += found[::2]
            if text is side.tensor:
                tensors.update(range(len(numbers), len(numbers) + len(found) // 2))
            numbers += map(int, found[1::2])
            texts.append("\0")  # between fields
        counts.append(len(numbers))
    return _Skeleton(tuple(texts), counts[0], frozenset(tensors)), tuple(numbers)


def _fields(side: DraftSide) -> tuple[tuple[str, bool], ...]:
    return (
        (side.op, True),
        (side.call, True),
        (side.tensor, True),
        (side.words, False),
        (side.rest, "[" not in side.rest),
    )


def _put_together(skeleton: _Skeleton, numbers: Sequence[str], sample: Draft) -> Draft:
    rest = list(numbers)
    sides = []
    for side in (sample.golden, sample.mine):
        fields = [
            _NUMBER.sub(lambda _: rest.pop(0), text) if has_numbers else text
            for text, has_numbers in _fields(side)
        ]
        sides.append(DraftSide(*fields))
    return Draft(*sides)
