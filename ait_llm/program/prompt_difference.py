"""How the tokens that two passes begin with differ, where one has more of them than the other.

A prompt that lacks its first token, or was cut off, has the same tokens at other places, or fewer
of them: what is compared token by token agrees, or differs everywhere, and neither says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.program.one_pass import Pass
from ait_llm.program.token_ids import TokenIds, is_padding, token_ids

_SHOWN = 5  # tokens

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptDifference:
    """Two prompts that are not the same.

    Attributes:
        text: as a clause.
        is_beginning: one is the beginning of the other, so that tokens of both are at one place.
    """

    text: str
    is_beginning: bool


def prompt_difference(golden: Pass, mine: Pass) -> PromptDifference | None:
    """The first request of which two passes read other numbers of tokens, or none.

    Padding that a mask hides is no token; where all tokens are equal, masks differ and not the
    prompts. Nothing is said where an engine tells which row is which token, of passes of single
    tokens, and where the mask of a padded batch was not captured.
    """
    if golden.same_rows is not None or mine.same_rows is not None:
        return None
    read = token_ids(golden), token_ids(mine)
    if read[0] is None or read[1] is None or np.array_equal(read[0].ids, read[1].ids):
        return None
    prompts = _prompts(read[0]), _prompts(read[1])
    if len(prompts[0]) != len(prompts[1]):
        return None
    for number, (theirs, ours) in enumerate(zip(*prompts, strict=True)):
        if len(theirs) != len(ours) and min(len(theirs), len(ours)) > 1:
            if is_padding((*theirs[len(ours) :], *ours[len(theirs) :])):
                continue
            where = f"request {number}: " if len(prompts[0]) > 1 else ""
            begins = ours[: len(theirs)] == theirs[: len(ours)]
            return PromptDifference(f"{where}{told(theirs, ours)}", begins)
    return None


def _prompts(ids: TokenIds) -> list[Prompt]:
    return [] if ids.unsure else ids.prompts()


def told(golden: Prompt, mine: Prompt) -> str:
    """What mine lacks, or has more."""
    counts = f"mine reads {len(mine)} tokens and golden {len(golden)}"
    short, long = (mine, golden) if len(mine) < len(golden) else (golden, mine)
    left = len(long) - len(short)
    verb = "mine lacks" if short is mine else "mine adds"
    if long[: len(short)] == short:
        return f"{counts}: {verb} the last {_named(long[-left:], 'token')}"
    if long[left:] == short:
        return f"{counts}: {verb} the first {_named(long[:left], 'token')}"
    first = next(place for place, each in enumerate(short) if each != long[place])
    if long[first + left :] == short[first:]:
        added = _named(long[first : first + left], "a token")
        return f"{counts}: {verb} {added} at place {first}"
    return f"{counts}; at place {first} it has {mine[first]} instead of {golden[first]}"


def _named(tokens: Sequence[int], one: str) -> str:
    """``3 tokens (5 8 9)``: how many, and which; a single one as it is called."""
    shown = " ".join(map(str, tokens[:_SHOWN]))
    count = one if len(tokens) == 1 else f"{len(tokens)} tokens"
    return f"{count} ({shown}{' …' if len(tokens) > _SHOWN else ''})"
