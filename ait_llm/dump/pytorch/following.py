"""Teacher forcing: a program that generates takes the tokens that a golden run chose.

Its own logits stay what they are, and so does all that is captured; only the scores that
transformers' ``generate`` chooses from are replaced, after every other processor of them. Sampling,
batches and static caches follow like that; a beam search keeps golden's beams (:mod:`beams`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.golden_tokens import GoldenBeams, GoldenRequest, GoldenTokens
from ait_llm.dump.pytorch.assisted import is_proposing
from ait_llm.dump.pytorch.notes import Notes


class Follower:
    """Makes the generations of this process follow those of a golden run.

    Args:
        tokens: what golden chose.
    """

    def __init__(self, tokens: GoldenTokens) -> None:
        self.path = tokens.path
        self.asked = False
        self.refused = False
        rank = os.environ.get("RANK", "")
        number = int(rank) if rank.isdecimal() else 0
        self._requests = tokens.of_rank(number)
        self._beams = tokens.beams_of_rank(number)
        self._used: set[int] = set()
        self._used_beams: set[int] = set()
        self.notes = Notes()

    def note(self, state: str, **facts: Any) -> None:
        """Note what became of following: ``begun``, ``differs``, ``ended``, ``refused``."""
        self.notes.tell("follow", {"state": state, "golden": self.path, **facts})

    def refuse(self, reason: str) -> None:
        """Note that a generation does not follow, and why."""
        self.refused = True
        self.note("refused", reason=reason)

    def knows(self, rows: Sequence[Sequence[int]]) -> bool:
        """True if there is a golden request for each row of tokens."""
        return all(any(each.place_of(row) is not None for each in self._requests) for row in rows)

    def knows_start(self, rows: Sequence[Sequence[int]]) -> bool:
        """True if each row begins a golden prompt and is shorter than that."""
        return all(
            any(
                len(row) < len(each.prompt) and each.prompt[: len(row)] == tuple(row)
                for each in self._requests
            )
            for row in rows
        )

    def requests_for(self, rows: Sequence[Sequence[int]]) -> list[GoldenRequest] | None:
        """The golden requests that go on from these tokens, one for each row.

        A request serves once, and again only where no other one has the same prompt.
        """
        found: list[GoldenRequest] = []
        for number, row in enumerate(rows):
            fits = [
                place for place, each in enumerate(self._requests) if each.place_of(row) is not None
            ]
            if not fits:
                self.refuse(self._difference(number, row))
                return None
            place = next((place for place in fits if place not in self._used), fits[-1])
            self._used.add(place)
            found.append(self._requests[place])
        return found

    def beams_for(self, prompts: Sequence[Sequence[int]], width: int) -> GoldenBeams | None:
        """The golden beam search with these prompts; each serves as a request does."""
        fits = [
            place
            for place, each in enumerate(self._beams)
            if each.width == width and each.prompts == tuple(map(tuple, prompts))
        ]
        if not fits:
            number = len(self._beams)
            searches = f"{number or 'no'} beam search{'es' if number > 1 else ''}"
            reason = f"golden's dump has {searches}"
            if number:
                reason += f", and none with {width} beams and these prompts"
            self.refuse(f"{reason}; give both runs the same prompts, padding and num_beams")
            return None
        place = next((place for place in fits if place not in self._used_beams), fits[-1])
        self._used_beams.add(place)
        return self._beams[place]

    def _difference(self, number: int, row: Sequence[int]) -> str:
        """Where a prompt differs from the golden one that it has most in common with."""
        if not self._requests:
            return "golden's dump holds beam searches only; run mine with num_beams, too"
        nearest = max(self._requests, key=lambda each: _common(each.prompt, row))
        place = _common(nearest.prompt, row)
        ours, theirs = (_told(tokens, place) for tokens in (row, nearest.prompt))
        return (
            f"the prompt of request {number} is none of golden's: token {place} is {ours} instead "
            f"of {theirs}; give both runs the same prompt and padding"
        )


class ForcedTokens:
    """A logits processor, the last one of a generation, that leaves only golden's token.

    Args:
        follower: what to follow, and where to note it.
        step: the step of the capture that the logits are of, -1 where there is none.
        sampled: the program samples, so that the largest score is no choice.
    """

    def __init__(self, follower: Follower, step: Callable[[], int], *, sampled: bool) -> None:
        self._follower = follower
        self._step = step
        self._sampled = sampled
        self._start = -1
        self._requests: list[GoldenRequest] | None = None
        self._had: list[int] = []
        self._ended = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if is_proposing():
            return scores  # what it proposes is nobody's choice
        if self._start < 0:
            self._begin(input_ids)
        if self._requests is None or len(self._requests) != len(scores):
            return scores
        forced = scores.clone()
        length = int(input_ids.shape[-1]) - self._start
        for row, (request, had) in enumerate(zip(self._requests, self._had, strict=True)):
            place = had + length
            if place >= len(request.chosen):
                self._end()
                continue
            if input_ids[row, self._start :].tolist() != [*request.chosen[had:place]]:
                continue  # behind a proposal that is not golden's and will not be taken
            token = request.chosen[place]
            if token >= scores.shape[-1]:
                self._follower.refuse(f"golden's token {token} is not in the vocabulary")
                self._requests = None
                return scores
            self._compare(row, token, scores[row])
            forced[row] = -torch.inf
            forced[row, token] = 0
        return forced

    def _begin(self, input_ids: Tensor) -> None:
        self._start = int(input_ids.shape[-1])
        self._requests = self._follower.requests_for(input_ids.tolist())
        if self._requests is None:
            return
        rows = zip(self._requests, input_ids.tolist(), strict=True)
        self._had = [request.place_of(row) or 0 for request, row in rows]
        self._follower.note(
            "begun",
            step=self._step(),
            requests=len(self._requests),
            tokens=max(len(each.chosen) for each in self._requests),
            sampled=self._sampled,
        )

    def _compare(self, row: int, token: int, scores: Tensor) -> None:
        own = int(scores.argmax())
        if own != token and not self._sampled:
            margin = float(scores[own] - scores[token])
            self._follower.note(
                "differs", step=self._step(), request=row, own=own, taken=token, margin=margin
            )

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._follower.note("ended", step=self._step())


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count


def _told(tokens: Sequence[int], place: int) -> str:
    return str(tokens[place]) if place < len(tokens) else "missing"
