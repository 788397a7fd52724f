"""Beam search of ``transformers``: which beams a run goes on with, noted and followed.

A beam is a row of the batch. At each step the search keeps the ``width`` best continuations of the
rows of a prompt, best first; what it kept is seen when it asks for the next scores. The pass that
reads them shows their tokens, and not which row each one goes on from: that is noted in the ledger.

A run that follows is given scores under which its search keeps golden's rows in golden's order. A
search adds the scores that its rows had before; those are known, because they were given, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ait_llm.dump.golden_tokens import GoldenBeams
from ait_llm.dump.pytorch.notes import Notes

Rows = list[list[int]]
Kept = list[tuple[int, int]]  # parent row and token of each row

_APART = 1e-3  # between the scores of two beams that are kept, best first
_LOW = -60.0  # all others: sampling needs more candidates than are kept, and never takes these


class BeamNotes:
    """A logits processor that changes nothing and notes which beams a search keeps.

    Args:
        to: where.
        step: the step of the capture that the scores are of, -1 where there is none.
        width: beams of each prompt.
    """

    def __init__(self, to: Notes, step: Callable[[], int], width: int) -> None:
        self._to = to
        self._step = step
        self._width = width
        self._rows: Rows | None = None
        self._is_off = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        rows: Rows = input_ids.tolist()
        if self._is_off or not self._continues(rows):
            self._is_off = True  # a search of another kind; the program is not to be disturbed
            return scores
        facts: dict[str, object] = {"step": self._step(), "width": self._width}
        if self._rows is None:
            facts["prompts"] = rows[:: self._width]
        else:
            facts["kept"] = kept_of(self._rows, rows, self._width)
        self._to.tell("beams", facts)
        self._rows = rows
        return scores

    def _continues(self, rows: Rows) -> bool:
        """True for whole prompts, each row a token longer than at the step before."""
        if self._rows is None:
            return len(rows) % self._width == 0
        return len(rows) == len(self._rows) and len(rows[0]) == len(self._rows[0]) + 1


def kept_of(before: Rows, rows: Rows, width: int) -> Kept:
    """From which row each row goes on, and with which token.

    Args:
        before: the rows of the step before.
        rows: those of this one, a token longer.
        width: rows of a prompt; one goes on from a row of its own prompt.
    """
    kept = []
    for number, row in enumerate(rows):
        first = number - number % width
        own = range(first, first + width)
        parent = next((each for each in own if before[each] == row[:-1]), number)
        kept.append((parent, row[-1]))
    return kept


class ForcedBeams:
    """A logits processor, the last one of a beam search, that has it keep golden's beams.

    Args:
        golden: finds the golden search with such prompts, ``[prompts, tokens]``; None where there
            is none.
        note: tells what became of following: a state and what belongs to it.
        step: the step of the capture that the scores are of, -1 where there is none.
        width: beams of each prompt.
        ends: ids of tokens that end a text.
        sampled: the search samples, so that the best continuations are no choice.
    """

    def __init__(
        self,
        golden: Callable[[Rows, int], GoldenBeams | None],
        note: Callable[..., None],
        step: Callable[[], int],
        width: int,
        ends: Sequence[int],
        *,
        sampled: bool,
    ) -> None:
        self._golden = golden
        self._note = note
        self._step = step
        self._width = width
        self._ends = list(ends)
        self._sampled = sampled
        self._call = -1
        self._is_over = False
        self._followed: GoldenBeams | None = None
        self._given: list[float] = []  # by the search, to each row, as it adds them up
        self._own: list[float] = []  # what they would be by the scores of the model

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._call += 1
        if self._call == 0:
            self._begin(input_ids.tolist())
        if self._followed is None:
            return scores
        if self._call >= len(self._followed.kept):
            return self._ended(scores)
        if len(scores) != len(self._given):
            self._note("refused", reason="the rows of the search are not those of golden's")
            self._followed = None
            return scores
        kept = self._followed.kept[self._call]
        if max(token for _, token in kept) >= scores.shape[-1]:
            self._note("refused", reason="golden's tokens are not in the vocabulary")
            self._followed = None
            return scores
        self._compare(kept, scores)
        forced = torch.full_like(scores, _LOW)
        given = [-_APART * (number % self._width) for number in range(len(kept))]
        for number, (parent, token) in enumerate(kept):
            forced[parent, token] = given[number] - self._given[parent]
        self._own = [self._own[parent] + float(scores[parent, token]) for parent, token in kept]
        self._given = given
        return forced

    def _begin(self, rows: Rows) -> None:
        prompts = rows[:: self._width]
        self._followed = self._golden(prompts, self._width)
        if self._followed is None:
            return
        # All rows of a prompt are equal at first: a search takes them for one.
        self._given = [0.0 if number % self._width == 0 else -1e9 for number in range(len(rows))]
        self._own = list(self._given)
        self._note(
            "begun",
            step=self._step(),
            requests=len(prompts),
            tokens=len(self._followed.kept),
            sampled=self._sampled,
        )

    def _compare(self, kept: Sequence[tuple[int, int]], scores: Tensor) -> None:
        """Note where the model's own scores keep another continuation than golden's."""
        if self._sampled:
            return
        own = scores.float() + torch.tensor(self._own, device=scores.device)[:, None]
        own[:, self._ends] = -torch.inf  # a text that ends is kept elsewhere
        for first in range(0, len(kept), self._width):
            beams = own[first : first + self._width]
            best = beams.flatten().topk(self._width).indices.tolist()
            theirs = {(parent, token) for parent, token in kept[first : first + self._width]}
            ours = [(first + at // beams.shape[1], at % beams.shape[1]) for at in best]
            other = [each for each in ours if each not in theirs]
            lost = sorted(theirs - {*ours}, key=lambda each: float(own[each]))
            if other and lost:
                margin = float(own[other[0]] - own[lost[0]])
                facts = {"own": other[0][1], "taken": lost[0][1], "margin": margin}
                self._note("differs", step=self._step(), request=first // self._width, **facts)

    def _ended(self, scores: Tensor) -> Tensor:
        """Golden kept nothing more: the search ends, with its rows as they are, where it can."""
        if not self._ends or self._is_over:
            if not self._is_over:
                self._note("ended", step=self._step())
            self._is_over = True
            return scores
        self._is_over = True
        forced = torch.full_like(scores, _LOW)
        forced[:, self._ends[0]] = 0.0
        return forced
