"""Teacher forcing of programs that choose their tokens by themselves, in a loop around the model.

Whatever such a program does with the logits, its model reads the tokens that were chosen. So they
are replaced there, in the very tensor that the model is given: a tensor of chosen tokens that the
program keeps becomes golden's, too. What it prints from copies, and whether it stops, stays its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ait_llm.dump.golden_tokens import GoldenRequest
from ait_llm.dump.pytorch.following import Follower

_NAMES = ("decoder_input_ids", "input_ids", "idx", "tokens")
_POSITIONS = "positions"
_INTEGERS = (torch.int32, torch.int64)


@dataclass
class _Run:
    """One request of a generation that is under way.

    Attributes:
        request: golden's, that it follows.
        had: tokens that golden chose and that the prompt holds already.
        prompt: tokens of its prompt, padding included.
        read: chosen tokens that the model was given since.
    """

    request: GoldenRequest
    had: int
    prompt: int
    read: int = 0

    @property
    def place(self) -> int:
        """How many of golden's choices the model has read."""
        return self.had + self.read


class LoopFollower:
    """Gives a model golden's tokens in place of those that its program chose.

    Args:
        follower: what to follow, and where to note it.
        step: the step that the capture of the model is at.
    """

    def __init__(self, follower: Follower, step: Callable[[], int]) -> None:
        self._follower = follower
        self._step = step
        self._runs: list[_Run] | None = None
        self._length = 0
        self._pending: list[list[int]] = []
        self._logits: Tensor | None = None
        self._ended = False
        self._handle: RemovableHandle | None = None
        self.begun = False

    def watch(self, model: nn.Module) -> None:
        """Keep what the model returns, to say how closely its own choice was another one."""
        self._handle = model.register_forward_hook(lambda _m, _inputs, out: self._keep(out))

    def before(self, named: Mapping[str, Any]) -> None:
        """Account for a call of the model; the ids that it is given become golden's."""
        if self._follower.asked:  # generate() of transformers follows already
            return
        ids = _ids_of(named)
        if ids is None:
            return
        positions = named.get(_POSITIONS)
        rows = _rows(ids, positions, 0 if self._runs is None else len(self._runs))
        if self._goes_on(rows):
            if self._is_in_order(positions):
                self._force(rows)
        elif self._runs is not None and len(rows) < len(self._runs) and len(rows[0]) == 1:
            self._stop(f"the batch went from {len(self._runs)} requests to {len(rows)}")
        else:
            self._begin([row.tolist() for row in rows])
        self._length = max(len(row) for row in rows)

    def finish(self, called: bool) -> None:
        """Leave the model as it was, and say what did not follow.

        Args:
            called: the model was called more than once.
        """
        if self._handle is not None:
            self._handle.remove()
        if self._follower.asked:
            return
        if self._pending and not self.begun:
            self._follower.requests_for(self._pending)  # says why
        elif called and not self.begun and not self._follower.refused:
            self._follower.refuse(
                "the model is given no token ids that could be replaced (input_ids, idx or tokens)"
            )
        self._tell_short()

    def _goes_on(self, rows: Sequence[Tensor]) -> bool:
        """True if the generation under way reads its next token, or all of them and one more."""
        runs = self._runs
        if runs is None or len(rows) != len(runs):
            return False
        lengths = {len(row) for row in rows}
        if lengths == {1}:
            return True
        if lengths != {self._length + 1}:
            return False
        starts = (row[: run.prompt].tolist() for row, run in zip(rows, runs, strict=True))
        return all(
            run.request.place_of(start) == run.had for run, start in zip(runs, starts, strict=True)
        )

    def _is_in_order(self, positions: object) -> bool:
        """False if positions say that the rows of a batch are other requests than before."""
        assert self._runs is not None
        if not isinstance(positions, Tensor) or positions.shape != (len(self._runs),):
            return True
        if positions.tolist() == [run.prompt + run.read for run in self._runs]:
            return True
        self._stop("the requests of a batch changed places")
        return False

    def _stop(self, reason: str) -> None:
        """End following where nobody knows which request is which."""
        text = "which is which is not known; run as many requests as stay together, or one by one"
        self._follower.refuse(f"{reason}, and {text}")
        self._runs = None

    def _begin(self, rows: list[list[int]]) -> None:
        """Look for the requests that have these prompts; parts of prompts wait for the rest."""
        self._tell_short()
        if self._pending and len(self._pending) == len(rows):
            rows = [[*first, *rest] for first, rest in zip(self._pending, rows, strict=True)]
        self._pending = []
        self._runs = None
        self._ended = False
        if all(len(set(row)) == 1 for row in rows) and not self._follower.knows(rows):
            return  # an engine that warms up
        if not self._follower.knows(rows) and self._follower.knows_start(rows):
            self._pending = rows
            return
        found = self._follower.requests_for(rows)
        if found is None:
            return
        self._runs = [
            _Run(request, request.place_of(row) or 0, len(row))
            for request, row in zip(found, rows, strict=True)
        ]
        self.begun = True
        self._follower.note(
            "begun",
            step=max(self._step(), 0),
            requests=len(found),
            tokens=max(len(each.chosen) for each in found),
            sampled=False,
        )

    def _force(self, rows: Sequence[Tensor]) -> None:
        """Write golden's choices over the program's."""
        assert self._runs is not None
        for number, (run, row) in enumerate(zip(self._runs, rows, strict=True)):
            chosen = run.request.chosen
            if run.place >= len(chosen):
                self._end()
                continue
            run.read += 1
            own, taken = int(row[-1]), chosen[run.place - 1]
            if len(row) > 1:
                wanted = chosen[run.had : run.place]
                self._write(row[run.prompt :], wanted)
            elif own != taken:
                self._write(row, (taken,))
            if own != taken:
                self._differs(number, own, taken)

    def _write(self, row: Tensor, tokens: Sequence[int]) -> None:
        try:
            with torch.inference_mode(row.is_inference()), torch.no_grad():
                row.copy_(torch.tensor(tokens, dtype=row.dtype))
        except RuntimeError as error:
            self._follower.refuse(f"the ids that the model is given cannot be replaced ({error})")
            self._runs = None

    def _differs(self, request: int, own: int, taken: int) -> None:
        step = self._step() + 1  # of the call that begins now; the choice was made one before
        logits = self._logits
        if logits is None or request >= len(logits) or max(own, taken) >= logits.shape[-1]:
            self._follower.note("differs", step=step - 1, request=request, own=own, taken=taken)
            return
        row = logits[request]
        if int(row.argmax()) != own:
            self._follower.note("sampled", step=step - 1, request=request)
            return
        margin = float(row[own] - row[taken])
        self._follower.note(
            "differs", step=step - 1, request=request, own=own, taken=taken, margin=margin
        )

    def _keep(self, output: Any) -> None:
        """The newest logits, ``[requests, vocabulary]``."""
        found = getattr(output, "logits", output)
        found = found[0] if isinstance(found, tuple) and found else found
        self._logits = None
        if isinstance(found, Tensor) and found.is_floating_point() and found.dim() in (2, 3):
            self._logits = (found if found.dim() == 2 else found[:, -1]).detach()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._follower.note("ended", step=max(self._step(), 0))

    def _tell_short(self) -> None:
        """Say that a generation ended before golden's did; the last choice is read by nobody."""
        for number, run in enumerate(self._runs or ()):
            left = len(run.request.chosen) - 1 - run.place
            if left > 0:
                self._follower.refuse(
                    f"the program ended request {number} by itself, {left} tokens before golden; "
                    "let it ask for as many tokens, and ignore the end of the text"
                )
                break
        self._runs = None


def _ids_of(named: Mapping[str, Any]) -> Tensor | None:
    """The token ids among the arguments of a model: by name, else the first that may be."""
    for name in _NAMES:
        value = named.get(name)
        if _may_be_ids(value):
            return value
    first = next(iter(named.values()), None)
    return first if _may_be_ids(first) else None


def _may_be_ids(value: object) -> TypeGuard[Tensor]:
    return (
        isinstance(value, Tensor)
        and value.dtype in _INTEGERS
        and value.dim() in (1, 2)
        and value.numel() > 0
    )


def _rows(ids: Tensor, positions: object, running: int) -> list[Tensor]:
    """The tokens of each request, as views.

    Args:
        ids: ``[requests, tokens]``, or ``[tokens]`` of requests that are packed.
        positions: of packed tokens in their requests; these begin where positions do not go on.
        running: requests of the generation under way, each of which may read one token.
    """
    if ids.dim() == 2:
        return list(ids)
    if not isinstance(positions, Tensor) or positions.shape != ids.shape:
        return [ids]
    if len(ids) == running and int(positions.min()) > 0:
        return list(ids.tensor_split(running))
    jumps = (positions[1:] != positions[:-1] + 1).nonzero().flatten() + 1
    return list(ids.tensor_split(jumps.cpu()))
