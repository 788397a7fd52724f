"""From the logits of two runs to what each thought of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ait_llm.decisions.result import Decision
from ait_llm.dump.patches import Margin
from ait_llm.formats.elements import Array
from ait_llm.transplanting.answer import Answer, divergences, log_softmax, without_masks

_ROWS = 256  # of the vocabulary at a time, in float64


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision, and where its numbers are.

    Attributes:
        decision: it.
        margin: the two logits of mine.
        row: number of the place in the answer, and of the row in it.
    """

    decision: Decision
    margin: Margin
    row: tuple[int, int]


def decisions_of(answer: Answer, run: Path) -> Iterator[Choice]:
    """What golden and a run of mine thought of each token.

    Args:
        answer: of the programs; its numbers are logits.
        run: output folder of the run.
    """
    for number, golden, mine in answer.rows(run):
        for first in range(0, len(golden), _ROWS):
            some = slice(first, first + _ROWS)
            yield from _rows(answer, number, first, golden[some], mine[some])


def margins_in(answer: Answer, run: Path, choices: Sequence[Choice]) -> list[float | None]:
    """The margins of the same tokens in another run; None where it has no such answer."""
    rows = {number: mine for number, _, mine in answer.rows(run)}
    found: list[float | None] = []
    for choice in choices:
        number, row = choice.row
        if number not in rows:
            found.append(None)
            continue
        logits, decision = rows[number][row].astype(np.float64), choice.decision
        found.append(float(logits[decision.golden] - logits[decision.mine]))
    return found


def _rows(answer: Answer, number: int, first: int, golden: Array, mine: Array) -> Iterator[Choice]:
    place, numbers = answer.places[number], answer.numbers[number]
    theirs, ours, _ = without_masks(golden, mine)
    ours = np.nan_to_num(ours, nan=-1e30, posinf=1e30, neginf=-1e30)
    told, thought = log_softmax(theirs), log_softmax(ours)
    kl = divergences(told, thought)
    best, chosen = theirs.argmax(axis=1), ours.argmax(axis=1)
    others = theirs.copy()
    others[np.arange(len(others)), best] = -np.inf
    second = others.argmax(axis=1)
    shape = place.matches[0].mine.tensor.shape
    for index in range(len(golden)):
        row = first + index
        start = row * answer.width
        # where the row begins in mine's tensor, which may have its numbers in another order
        where = start if numbers.at is None else int(numbers.at[start])
        a, b = int(best[index]), int(chosen[index])
        other = b if a != b else int(second[index])
        elements = [
            start + token if numbers.at is None else int(numbers.at[start + token])
            for token in (a, other)
        ]
        yield Choice(
            Decision(
                step=place.step,
                place=tuple(int(i) for i in np.unravel_index(where, shape)[:-1]),
                golden=a,
                mine=b,
                golden_margin=float(theirs[index, a] - theirs[index, other]),
                mine_margin=float(ours[index, a] - ours[index, other]),
                golden_probability=float(np.exp(told[index, a])),
                mine_probability=float(np.exp(thought[index, a])),
                other_probabilities=(
                    float(np.exp(told[index, b])),
                    float(np.exp(thought[index, b])),
                ),
                drift=float(thought[index, a] - told[index, a]),
                kl=float(kl[index]),
            ),
            Margin(place.key, elements[0], elements[1]),
            (number, row),
        )
