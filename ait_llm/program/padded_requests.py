"""The requests of a program that pads or packs whole batches, by the tokens that it reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ait_llm.program.readings import Reading
from ait_llm.program.schedule import Stretch, prefix_keys
from ait_llm.program.token_ids import TokenIds


def stretches_of(read: Sequence[Reading]) -> list[tuple[Stretch, ...]]:
    """Which rows of each pass of a process are which tokens; none where that is not known.

    Passes of which an engine said it are as it said. Of others, each row of a batch is a request,
    named by its generation and its number in the batch.
    """
    found: list[tuple[Stretch, ...]] = []
    keys: dict[int, list[int]] = {}
    generation = -1
    for each in read:
        if each.run.schedule is not None:
            found.append(each.run.schedule.stretches)
            continue
        if each.generation != generation:
            generation, keys = each.generation, {}
        rows = [] if each.ids is None or each.ids.ids.ndim != 2 else _rows(each.ids)
        goes_on = each.ids is not None and each.ids.ids.shape[-1] == 1
        stretches = []
        for number, (first_row, tokens) in enumerate(rows):
            known = keys.setdefault(number, [])
            if not goes_on:
                known.clear()
            first = len(known)
            known += prefix_keys(tokens, known[-1] if known else None)
            stretches.append(
                Stretch(
                    f"{generation}.{number}",
                    first_row,
                    first,
                    len(tokens),
                    tuple(tokens),
                    keys=tuple(known[first:]),
                )
            )
        found.append(tuple(stretches))
    return found


def row_keys(read: Sequence[Reading]) -> list[tuple[int, ...]]:
    """Of each pass and each row of its batch, what stands for all tokens read so far."""
    return [
        tuple(each.keys[-1] for each in stretches if each.keys) for stretches in stretches_of(read)
    ]


def _rows(read: TokenIds) -> list[tuple[int, list[int]]]:
    """Of each request the flat row of its first token, and the tokens without padding.

    Nothing where padding stands between tokens.
    """
    count, length = read.ids.shape
    mask = np.ones((count, length), dtype=bool) if read.mask is None else read.mask
    found = []
    for number in range(count):
        places = np.flatnonzero(mask[number])
        if not len(places) or places[-1] - places[0] + 1 != len(places):
            return []
        tokens = [int(token) for token in read.ids[number, places]]
        found.append((number * length + int(places[0]), tokens))
    return found
