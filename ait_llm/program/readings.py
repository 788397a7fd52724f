"""What the passes of a process read one after the other, and what was chosen between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ait_llm.program.logits import largest_logit
from ait_llm.program.one_pass import Pass
from ait_llm.program.token_ids import TokenIds, token_ids

_LOOKED_BACK = 5
"""Passes whose choices show whether a program takes the largest logit."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pass reads, and which generation of its process it belongs to, from 0."""

    run: Pass
    ids: TokenIds | None
    generation: int

    @property
    def newest(self) -> list[int]:
        """The newest token of each request; none where they are not known."""
        return [] if self.ids is None else [int(token) for token in self.ids.newest]


def readings(passes: Sequence[Pass]) -> list[Reading]:
    """The tokens of passes of one process, in their order."""
    found: list[Reading] = []
    before: TokenIds | None = None
    generation = 0
    for run in passes:
        ids = token_ids(run)
        if ids is not None:
            generation += before is not None and not ids.goes_on_from(before)
            before = ids
        found.append(Reading(run, ids, generation))
    return found


def generations(side: Sequence[Reading]) -> list[list[Reading]]:
    """The passes of each generation."""
    found: list[list[Reading]] = []
    for each in side:
        if not found or found[-1][-1].generation != each.generation:
            found.append([])
        found[-1].append(each)
    return found


def is_greedy(read: Sequence[Reading], request: int) -> bool:
    """True if the last passes read the token with the largest logit of the one before each."""
    return all(
        request < len(late.newest)
        and largest_logit(early.run, request, len(late.newest)) == late.newest[request]
        for early, late in pairwise(read[-_LOOKED_BACK:])
    )
