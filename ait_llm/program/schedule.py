"""Which row of a pass is which token of which request, as an engine wrote it into the ledger.

An engine packs the tokens of many requests into one pass, a prompt perhaps in several. Lines of the
kinds ``request``, ``schedule`` and ``sampled`` say what it computed; see ``docs/formats.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ait_llm.program.one_pass import Pass


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive tokens of one request, in consecutive rows.

    Attributes:
        request: its id.
        row: flat row of the first of them.
        first: position of the first in the request.
        count: how many there are.
        tokens: their ids; empty where they are not known.
        cached: tokens before the first that a prefix cache had.
        speculative: how many of them, at the end, were only proposed.
        keys: of each token, what stands for it and all before it: equal where these are equal;
            empty where they are not known.
    """

    request: str
    row: int
    first: int
    count: int
    tokens: tuple[int, ...] = ()
    cached: int = 0
    speculative: int = 0
    keys: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """Position behind the last."""
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one pass computes.

    Attributes:
        step: number of the pass.
        stretches: in the order of their rows.
        sampled: tokens that the pass chose, by request; requests that go on with their prompt have
            none.
    """

    step: int
    stretches: tuple[Stretch, ...]
    sampled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rows of tokens; tensors may have padding behind them."""
        return max((each.row + each.count for each in self.stretches), default=0)

    @property
    def newest(self) -> tuple[int, ...]:
        """The rows whose logits the engine computes: the last, and those that were proposed."""
        return tuple(
            row
            for each in self.stretches
            for row in range(each.row + each.count - 1 - each.speculative, each.row + each.count)
        )

    def places(self) -> Iterator[tuple[int, str, int]]:
        """Row, request and position of every token."""
        for each in self.stretches:
            for place in range(each.count):
                yield each.row + place, each.request, each.first + place


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request as far as the ledger tells it.

    Attributes:
        name: its id.
        number: how many came before it.
        prompt: tokens of its prompt.
        tokens: the prompt, what was read behind it, and what was chosen last.
        cached: tokens of the prompt that a prefix cache had when it was first computed.
    """

    name: str
    number: int
    prompt: int
    tokens: tuple[int, ...]
    cached: int = 0


@dataclass(frozen=True, slots=True)
class EngineSchedules:
    """What an engine computed in one process.

    Attributes:
        passes: by number, whether they were captured or not.
        requests: by id, in the order in which they came.
    """

    passes: Mapping[int, Schedule]
    requests: Mapping[str, EngineRequest]


def schedule_of(run: Pass) -> Schedule | None:
    """What a pass computes; None where no engine said so."""
    return run.schedule


def engine_schedules(lines: Sequence[Mapping[str, Any]]) -> EngineSchedules:
    """All that an engine wrote into a ledger; lines that cannot be read are left out."""
    passes: dict[int, Schedule] = {}
    requests: dict[str, _Request] = {}
    for line in lines:
        try:
            if line["kind"] == "request":
                request = requests.setdefault(
                    line["request"], _Request(line["number"], line["prompt"])
                )
                request.put(line["first"], line["tokens"])
            elif line["kind"] == "schedule":
                _add_rows(passes, requests, line)
            else:
                _add_sampled(passes, requests, line)
        except (KeyError, TypeError, ValueError):
            continue
    return EngineSchedules(
        passes,
        {
            name: EngineRequest(
                name, each.number, each.prompt, tuple(each.tokens), max(0, each.cached)
            )
            for name, each in requests.items()
        },
    )


@dataclass(slots=True)
class _Request:
    number: int
    prompt: int
    tokens: list[int] = field(default_factory=list)
    cached: int = -1
    _keys: list[int] = field(default_factory=list)

    def put(self, first: int, tokens: Sequence[int]) -> None:
        """What stands at a position, in place of what was thought to come there."""
        if first > len(self.tokens) or self.tokens[first : first + len(tokens)] == [*tokens]:
            return
        self.tokens[first:] = [*tokens, *self.tokens[first + len(tokens) : self.prompt]]
        del self._keys[first:]

    def keys(self, first: int, end: int) -> tuple[int, ...]:
        """Of the tokens at these positions; none where a token before is not known."""
        if end > len(self.tokens):
            return ()
        known = len(self._keys)
        before = self._keys[-1] if known else None
        self._keys += prefix_keys(self.tokens[known:end], before)
        return tuple(self._keys[first:end])


def prefix_keys(tokens: Iterable[int], before: int | None = None) -> Iterator[int]:
    """Of each token a number for it and all before it.

    Args:
        tokens: ids.
        before: the number of the token before the first, if there is one.
    """
    key = -1 if before is None else before
    for token in tokens:
        key = hash((key, int(token)))
        yield key


def _add_rows(
    passes: dict[int, Schedule], requests: Mapping[str, _Request], line: Mapping[str, Any]
) -> None:
    step = int(line["step"])
    known = passes.get(step, Schedule(step, ()))
    found = list(known.stretches)
    row = known.count
    for entry in line["rows"]:
        each = Stretch(
            str(entry["request"]),
            int(entry.get("row", row)),
            int(entry["first"]),
            int(entry["count"]),
            tuple(map(int, entry.get("tokens", ()))),
            int(entry.get("cached", 0)),
            int(entry.get("speculative", 0)),
        )
        row = each.row + each.count
        request = requests.get(each.request)
        if request is not None:
            if request.cached < 0:
                request.cached = each.cached
            if len(each.tokens) == each.count:
                request.put(each.first, each.tokens)
            each = replace(each, keys=request.keys(each.first, each.end))
        found.append(each)
    passes[step] = replace(known, stretches=tuple(found))


def _add_sampled(
    passes: dict[int, Schedule], requests: Mapping[str, _Request], line: Mapping[str, Any]
) -> None:
    step = int(line["step"])
    known = passes.get(step)
    if known is None:
        return
    chosen = {str(name): tuple(map(int, each)) for name, each in line["tokens"].items()}
    passes[step] = replace(known, sampled={**known.sampled, **chosen})
    for each in known.stretches:
        request = requests.get(each.request)
        if request is not None and each.request in chosen:
            request.put(each.end - each.speculative, chosen[each.request])
