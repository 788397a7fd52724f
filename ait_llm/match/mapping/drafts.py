"""A line that is being written, and the proof that it says nothing but what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from ait_llm.match.mapping.fit import Fit
from ait_llm.match.mapping.names import Names
from ait_llm.match.mapping.resolve import Resolver
from ait_llm.match.mapping.text import SAME, When, line_of
from ait_llm.match.model import Match, Source
from ait_llm.match.views import Part, Reorder, Repeat, Reshape, Rows, View, apply

_MAX_ELEMENTS = 1 << 22  # of the arrays by which two rows of views are shown to do the same

# Views that show in which elements they take; others change these.
_MOVES = (Part, Rows, Reshape, Reorder, Repeat)
# Confidence of pairs that may stand in one line.
_SURE, _FAIR = 0.9, 0.5

Key = tuple[int, str]
Instance = tuple[int, int]  # number of the pass and place among its pairs


@dataclass(frozen=True, slots=True)
class DraftSide:
    """One side of a line as text, in its parts.

    Attributes:
        op: pattern of the operation.
        call: of the call; empty where calls correspond.
        tensor: of the tensor; empty for the outputs.
        words: in brackets.
        rest: further summands, each after a plus sign.
    """

    op: str
    call: str
    tensor: str
    words: str = ""
    rest: str = ""

    def __str__(self) -> str:
        call = f"@{self.call}" if self.call else ""
        tensor = f":{self.tensor}" if self.tensor else ""
        return f"{self.op}{call}{tensor}{self.words}{self.rest}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A line as text, in its parts."""

    golden: DraftSide
    mine: DraftSide

    def __str__(self) -> str:
        mine = SAME if self.golden == self.mine else str(self.mine)
        return f"{self.golden} -> {mine}"


@dataclass(frozen=True, slots=True)
class Proven:
    """A line that says nothing but what was found.

    Attributes:
        draft: the line.
        covers: the pairs that it means.
    """

    draft: Draft
    covers: frozenset[Instance]


class PassPair:
    """A pair of passes and what was found in it.

    Attributes:
        golden, mine: names of both sides.
        matches: the pairs.
        fit: layouts of both runs.
    """

    def __init__(self, golden: Names, mine: Names, matches: Sequence[Match]) -> None:
        self.golden, self.mine = golden, mine
        self.matches = [each for each in matches if not each.is_self_check]
        self.fit = Fit(golden.run, mine.run)
        self.resolver = Resolver(golden, mine, self.fit)
        self._places: dict[tuple[Key, Key], list[int]] = {}
        for place, match in enumerate(self.matches):
            both = _key(match.golden), _key(match.mine)
            self._places.setdefault(both, []).append(place)

    def place(self, found: Match) -> int | None:
        """Where a pair is among those that were found; None if it is not."""
        for place in self._places.get((_key(found.golden), _key(found.mine)), ()):
            known = self.matches[place]
            if same_effect(known.golden, found.golden.views) and same_effect(
                known.mine, found.mine.views
            ):
                return place
        return None


class Proofs:
    """What was found in all passes, and which lines say nothing else.

    Args:
        passes: with their pairs.
    """

    def __init__(self, passes: Sequence[PassPair]) -> None:
        self.passes = passes
        self._covered: set[Instance] = set()
        self._known: dict[tuple[Draft, When], Proven | None] = {}

    def prove(self, draft: Draft, when: When) -> Proven | None:
        """The line with the pairs that it means; None if it means another or none."""
        key = draft, when
        if key not in self._known:
            self._known[key] = self._prove(draft, when)
        return self._known[key]

    def _prove(self, draft: Draft, when: When) -> Proven | None:
        try:
            line = line_of(str(draft), "draft", when)
        except ValueError:
            return None
        covers: set[Instance] = set()
        kinds: set[str] = set()
        for number, each in enumerate(self.passes):
            if not each.resolver.applies(line):
                continue
            for found in each.resolver.matches(line):
                if not isinstance(found, Match):
                    continue
                place = each.place(found)
                if place is None:
                    return None
                covers.add((number, place))
                kinds.add(self.kind((number, place)))
        if len(kinds) != 1:
            return None
        self._covered |= covers
        return Proven(draft, frozenset(covers))

    def kind(self, instance: Instance) -> str:
        """Pairs of one line are sure alike."""
        number, place = instance
        confidence = self.passes[number].matches[place].confidence
        if confidence >= _SURE:
            return "sure"
        return "fair" if confidence >= _FAIR else "doubtful"

    @property
    def count(self) -> int:
        """How many pairs the lines mean that were proven."""
        return len(self._covered)


def same_effect(source: Source, views: tuple[View, ...]) -> bool:
    """True if views take the elements of a tensor that those of the source take, in their order."""
    if source.views == views:
        return True
    shape = source.record.shape
    if shape is None or prod(shape) > _MAX_ELEMENTS:
        return False
    if not all(isinstance(view, _MOVES) for view in (*source.views, *views)):
        return False
    return _same_effect(shape, source.views, views)


@lru_cache(maxsize=4096)
def _same_effect(shape: tuple[int, ...], one: tuple[View, ...], other: tuple[View, ...]) -> bool:
    places = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    try:
        first, second = apply(places, one), apply(places, other)
    except ValueError:
        return False
    dims = [[dim for dim in each.shape if dim != 1] for each in (first, second)]
    return dims[0] == dims[1] and bool((first.reshape(-1) == second.reshape(-1)).all())


def _key(source: Source) -> Key:
    return source.record.order, source.record.name
