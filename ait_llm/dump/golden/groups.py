"""Which requests run together: one batch of about equal lengths, padded on the right.

What a causal model computes for a token depends on the tokens before it alone, so one pass over all
tokens of a request computes what its prompt and all its steps compute, and padding behind them
changes nothing. So every weight is read once for each group, whatever the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from ait_llm.program.row_plan import PassRows, Row

_TOKENS = 8192
"""Tokens of a group with their padding; a longer request is a group of its own."""
_FILLED = 0.75
"""Share of the longest request of a group that the others must have at least."""
_LIKE_NOBODY = 64
"""Lengths tried until one is that of no other axis of the model."""


@dataclass(frozen=True)
class Group:
    """Requests that run as one batch.

    Attributes:
        requests: their numbers, one for each row of the batch.
        lengths: tokens of each.
        length: tokens of the batch, padding included; no other axis of the model is as long.
        logits: rows of which logits are wanted, in their order.
        rows: rows that any pass wants, in their order.
    """

    requests: tuple[int, ...]
    lengths: tuple[int, ...]
    length: int
    rows: tuple[Row, ...]
    logits: tuple[Row, ...]

    @property
    def count(self) -> int:
        """Rows of the batch."""
        return len(self.requests)

    @cached_property
    def place(self) -> Mapping[Row, int]:
        """Where a wanted row is among those that are kept."""
        return {row: place for place, row in enumerate(self.rows)}

    @cached_property
    def logits_place(self) -> Mapping[Row, int]:
        """The same of rows of logits."""
        return {row: place for place, row in enumerate(self.logits)}

    def flat(self, rows: Iterable[Row]) -> list[int]:
        """Rows of the batch, requests one behind the other with their padding."""
        number = {request: place for place, request in enumerate(self.requests)}
        return [number[request] * self.length + place for request, place in rows]


def groups_of(
    requests: Sequence[Sequence[int]], passes: Sequence[PassRows], sizes: Set[int]
) -> list[Group]:
    """Groups of the requests that passes want, each token up to the last one that is wanted.

    Args:
        requests: tokens of each.
        passes: what is wanted.
        sizes: lengths of other axes of the model, which no axis of tokens may have.
    """
    wanted: dict[int, set[int]] = {}
    newest: dict[int, set[int]] = {}
    for each in passes:
        for row in each.rows:
            if row is not None:
                wanted.setdefault(row[0], set()).add(row[1])
        for request, place in each.newest:
            newest.setdefault(request, set()).add(place)
    lengths = {request: max(places) + 1 for request, places in wanted.items()}
    ordered = sorted(lengths, key=lambda request: (-lengths[request], request))
    found: list[list[int]] = []
    for request in ordered:
        if found:
            longest = lengths[found[-1][0]]
            fits = lengths[request] >= _FILLED * longest
            if fits and longest * (len(found[-1]) + 1) <= _TOKENS:
                found[-1].append(request)
                continue
        found.append([request])
    return [_group(sorted(each), lengths, wanted, newest, sizes) for each in found]


def _group(
    members: Sequence[int],
    lengths: Mapping[int, int],
    wanted: Mapping[int, set[int]],
    newest: Mapping[int, set[int]],
    sizes: Set[int],
) -> Group:
    rows = tuple((request, place) for request in members for place in sorted(wanted[request]))
    logits = tuple((request, place) for request in members for place in sorted(newest[request]))
    taken = {*sizes, len(logits), len(members), 1}
    longest = max(lengths[request] for request in members)
    length = next(
        each
        for each in range(longest, longest + _LIKE_NOBODY)
        if not {each, each * len(members)} & taken or each == longest + _LIKE_NOBODY - 1
    )
    return Group(
        tuple(members), tuple(lengths[request] for request in members), length, rows, logits
    )
