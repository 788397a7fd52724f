"""Teacher forcing: a program that generates takes the tokens that a golden run chose.

Its own logits stay what they are, and so does all that is captured; only the scores that
transformers' ``generate`` chooses from are replaced, after every other processor of them. Sampling,
batches and static caches follow like that; beam search does not, for it orders its beams anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.golden_tokens import GoldenRequest, GoldenTokens

UTILS = "transformers.generation.utils"
_PREPARE = "_get_logits_processor"

Tell = Callable[[dict[str, Any]], None]


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
        self._requests = tokens.of_rank(int(rank) if rank.isdecimal() else 0)
        self._used: set[int] = set()
        self._waiting: list[dict[str, Any]] = []
        self._tell: Tell | None = None

    def attach(self, tell: Tell) -> None:
        """Hand over what was noted so far, and from now on, as lines of the ledger."""
        self._tell = tell
        for line in self._waiting:
            tell(line)
        self._waiting.clear()

    def note(self, state: str, **facts: Any) -> None:
        """Note what became of following: ``begun``, ``differs``, ``ended``, ``refused``."""
        line = {"state": state, "golden": self.path, **facts}
        if self._tell is None:
            self._waiting.append(line)
        else:
            self._tell(line)

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

    def _difference(self, number: int, row: Sequence[int]) -> str:
        """Where a prompt differs from the golden one that it has most in common with."""
        nearest = max(self._requests, key=lambda each: _common(each.prompt, row))
        place = _common(nearest.prompt, row)
        ours, theirs = (_told(tokens, place) for tokens in (row, nearest.prompt))
        return (
            f"the prompt of request {number} is none of golden's: token {place} is {ours} instead "
            f"of {theirs}; give both runs the same prompt and padding"
        )


class _Forced:
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


def follow(follower: Follower, step_of: Callable[[nn.Module], int]) -> bool:
    """Make every ``generate`` of transformers ask the follower from now on.

    Args:
        follower: what to follow.
        step_of: the step that the capture of a model is at, -1 without one.

    Returns:
        False if transformers is not there yet; harmless when done before.
    """
    mixin = _mixin()
    if mixin is None:
        return False
    prepare = getattr(mixin, _PREPARE, None)
    if prepare is None:
        follower.refuse("this version of transformers prepares its logits in a way not known here")
        return True
    if getattr(prepare, "follower", None) is follower:
        return True

    def prepared(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        processors = prepare(model, *args, **kwargs)
        follower.asked = True
        config = kwargs.get("generation_config", args[0] if args else None)
        if (getattr(config, "num_beams", None) or 1) > 1:
            follower.refuse(
                "beam search orders its beams anew at each step and cannot follow; run mine and "
                "golden with num_beams=1"
            )
            return processors
        sampled = bool(getattr(config, "do_sample", False))
        processors.append(_Forced(follower, lambda: step_of(model), sampled=sampled))
        return processors

    prepared.follower = follower  # type: ignore[attr-defined]
    prepared.original = prepare  # type: ignore[attr-defined]
    setattr(mixin, _PREPARE, prepared)
    return True


def stop_following(follower: Follower) -> None:
    """Leave transformers as it was; harmless when done before."""
    mixin = _mixin()
    prepared = getattr(mixin, _PREPARE, None)
    if mixin is not None and getattr(prepared, "follower", None) is follower:
        setattr(mixin, _PREPARE, prepared.original)  # type: ignore[union-attr]


def _mixin() -> type | None:
    return getattr(sys.modules.get(UTILS), "GenerationMixin", None)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count


def _told(tokens: Sequence[int], place: int) -> str:
    return str(tokens[place]) if place < len(tokens) else "missing"
