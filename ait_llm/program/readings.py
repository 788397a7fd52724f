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


def read_the_same(golden: Sequence[Reading], mine: Sequence[Reading]) -> bool:
    """True if passes of equal numbers read the same tokens, as far as both sides have them.

    Padding does not count; at least one pass must be of more than one token, for a single one may
    be alike by chance.
    """
    steps = {each.run.step: each.ids for each in mine}
    pairs = [(each.ids, steps[each.run.step]) for each in golden if each.run.step in steps]
    told = [(one, other) for one, other in pairs if one is not None and other is not None]
    tokens = [(_tokens(one), _tokens(other)) for one, other in told]
    return (
        0 < len(told) == len(pairs)
        and all(one == other for one, other in tokens)
        and any(len(one) > 1 for one, _ in tokens)
    )


def _tokens(ids: TokenIds) -> list[int]:
    return [token for prompt in ids.prompts() for token in prompt]


def is_greedy(read: Sequence[Reading], request: int) -> bool:
    """True if the last passes read the token with the largest logit of the one before each."""
    return all(
        request < len(late.newest)
        and largest_logit(early.run, request, len(late.newest)) == late.newest[request]
        for early, late in pairwise(read[-_LOOKED_BACK:])
    )
