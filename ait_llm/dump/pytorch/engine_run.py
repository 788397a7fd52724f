"""The steps of an inference engine, which packs the tokens of many requests into each pass.

An engine decides before each pass which tokens of which requests it computes. That plan says what a
step is, whether it was asked for, and which row of every packed tensor is which token of which
request. The ledger gets it: a ``request`` line when a request is first seen, a ``schedule`` line
for each pass, and a ``sampled`` line for what was chosen (``docs/formats.md``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from ait_llm.dump.pytorch.engine_selection import RequestSelection

LINE_TOKENS = 8192
"""Tokens in one line of the ledger, whose length readers limit."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What an engine computes of one request in a pass.

    Attributes:
        request: its id.
        first: position of the first token.
        count: tokens.
        speculative: how many of them, at the end, are only proposed.
        known: all of its tokens as far as the engine says them, given when the request is new.
        sampling: settings of the choice of its tokens, given when the request is new.
        prompt: tokens of its prompt; None where it is not new.
        restarted: it is new, or what was computed of it is gone: tokens before the first come from
            a cache.
    """

    request: str
    first: int
    count: int
    speculative: int = 0
    known: Sequence[int] | None = None
    sampling: Mapping[str, str] = field(default_factory=dict)
    prompt: int | None = None
    restarted: bool = False


class Lines(Protocol):
    """What takes lines for the ledger."""

    def told(self, kind: str, facts: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class _Request:
    """What is known of a request.

    Attributes:
        number: how many came before it.
        prompt: tokens of its prompt.
        is_told: the ledger knows it, or will.
    """

    number: int
    prompt: int
    is_told: bool = False


@dataclass(slots=True)
class EngineRun:
    """The passes of one engine in one process.

    Attributes:
        selection: which passes are wanted.
        order: tells in which order the requests of the pass that begins are packed.
        step: number of the newest pass that counts, from 0; -1 before the first.
        is_dry: a pass that warms up or measures is running: it is no step.
        is_selected: the newest pass is wanted.
        is_idle: it computes nothing now.
    """

    selection: RequestSelection
    order: Callable[[], Sequence[str]] = tuple
    step: int = -1
    is_dry: bool = False
    is_selected: bool = False
    is_idle: bool = True
    _plan: dict[str, Planned] = field(default_factory=dict)
    _order: tuple[str, ...] | None = None
    _requests: dict[str, _Request] = field(default_factory=dict)
    _seen: int = 0
    _told: bool = True
    _waiting: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now(self) -> int:
        """The step that a call of a module belongs to; -1 where it belongs to none."""
        return -1 if self.is_dry else self.step

    @contextmanager
    def dry(self) -> Iterator[None]:
        """While a pass runs that warms up, measures memory or is captured as a graph."""
        before, self.is_dry = self.is_dry, True
        try:
            yield
        finally:
            self.is_dry = before

    def knows(self, request: str) -> bool:
        """True if the ledger has the tokens of a request."""
        state = self._requests.get(request)
        return state is not None and state.is_told

    def finished(self, requests: Sequence[str]) -> None:
        """Forget requests that come no more."""
        for request in requests:
            self._requests.pop(request, None)

    def begin(self, plan: Sequence[Planned]) -> None:
        """Begin the pass that computes these tokens, in whatever order."""
        self.step += 1
        self.is_dry = False
        self._plan = {each.request: each for each in plan}
        self._order = None
        self._told = False
        for each in plan:
            self._meet(each)
        known = self._requests
        self.is_selected = self.selection.covers(
            self.step,
            ((each, known[each.request].number, known[each.request].prompt) for each in plan),
        )

    def skip(self, new: Sequence[tuple[str, int]]) -> None:
        """Count a pass while nothing is captured.

        Args:
            new: requests that come with it, and how many tokens their prompts have.
        """
        self.step += 1
        self.is_selected = False
        self._told = True
        for request, prompt in new:
            self._number(request, prompt)

    def packed(self, order: Sequence[str]) -> None:
        """Tell the order in which the requests of this pass are packed."""
        self._order = tuple(order)

    def called(self, root: str, arguments: Mapping[str, Any], lines: Lines) -> None:
        """The model is called for this pass: write down which rows are which tokens.

        Args:
            root: name of the model.
            arguments: of its call; ``input_ids`` and ``positions`` have one row for each token,
                and perhaps more behind them.
            lines: the ledger.
        """
        if self._told or self.is_dry:
            return
        self._told = True
        order = self._order or self.order()
        planned = [self._plan[name] for name in order if name in self._plan]
        total = sum(each.count for each in planned)
        ids = _row(arguments.get("input_ids"), total)
        positions = _row(arguments.get("positions"), total)
        self._write_waiting(lines)
        rows: list[dict[str, Any]] = []
        start = written = 0
        for each in planned:
            first = each.first if positions is None else positions[start]
            row: dict[str, Any] = {"request": each.request, "first": first, "count": each.count}
            if each.restarted and first:
                row["cached"] = first
            if each.speculative:
                row["speculative"] = each.speculative
            if ids is not None:
                row["tokens"] = ids[start : start + each.count]
            start += each.count
            for part in _parts(row):
                if rows and written + part["count"] > LINE_TOKENS:
                    lines.told("schedule", {"root": root, "step": self.step, "rows": rows})
                    rows, written = [], 0
                rows.append(part)
                written += part["count"]
        lines.told("schedule", {"root": root, "step": self.step, "rows": rows})

    def sampled(
        self, root: str, step: int, tokens: Mapping[str, Sequence[int]], lines: Lines
    ) -> None:
        """Tell which tokens a pass chose; requests whose prompt goes on have none."""
        chosen = {name: list(map(int, each)) for name, each in tokens.items() if len(each)}
        if chosen:
            lines.told("sampled", {"root": root, "step": step, "tokens": chosen})

    def _meet(self, planned: Planned) -> None:
        state = self._number(planned.request, planned.prompt or 0)
        if not state.is_told:
            state.is_told = True
            if planned.sampling:
                self._waiting.append(("generation", {"settings": dict(planned.sampling)}))
            facts = {"request": planned.request, "number": state.number, "prompt": state.prompt}
            known = list(planned.known or ())
            for start in range(0, max(1, len(known)), LINE_TOKENS):
                tokens = known[start : start + LINE_TOKENS]
                self._waiting.append(("request", {**facts, "first": start, "tokens": tokens}))

    def _number(self, request: str, prompt: int) -> _Request:
        state = self._requests.get(request)
        if state is None:
            state = self._requests[request] = _Request(self._seen, prompt)
            self._seen += 1
        return state

    def _write_waiting(self, lines: Lines) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for kind, facts in waiting:
            lines.told(kind, facts)


def _row(value: object, total: int) -> list[int] | None:
    """The first numbers of a vector of whole numbers; None for anything else."""
    if not isinstance(value, Tensor) or value.dim() != 1 or value.shape[0] < total:
        return None
    if value.is_floating_point() or value.is_meta:
        return None
    return [int(each) for each in value[:total].tolist()]


def _parts(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of one request in parts that lines can hold."""
    count = row["count"]
    if count <= LINE_TOKENS:
        yield row
        return
    for start in range(0, count, LINE_TOKENS):
        part = {**row, "first": row["first"] + start, "count": min(LINE_TOKENS, count - start)}
        if "tokens" in row:
            part["tokens"] = row["tokens"][start : start + LINE_TOKENS]
        if start:
            part.pop("cached", None)
        yield part
