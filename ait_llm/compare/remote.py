"""Pairs measured in another process, which opens both sides itself.

A unit of work names pairs by the number of their pass and their place among its matches. Reading
and matching give the same list wherever the same files are seen; what comes back is checked to be
about the tensors that were meant.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ait_llm.compare.pair import Settings
from ait_llm.compare.repeated import Repeated
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.judge import Tolerance
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import Pairing, pair_runs
from ait_llm.match.programs.remembered import Memory, remembering
from ait_llm.match.scenario import find_scenario
from ait_llm.metrics import CustomMetric
from ait_llm.naming import shown
from ait_llm.storage import is_staging, local_path, prefetch

_PASSES = 4  # whose matches a process keeps
OTHER_FILES = "the node that was to compare it sees other files under the same path"


@dataclass(frozen=True)
class Request:
    """A comparison, as far as a worker must know it.

    Attributes:
        token: differs for each comparison, so that nothing is remembered too long.
        golden, mine: paths or URLs as given.
        weights, steps, match: what decides which tensor answers which.
        metrics, custom, tolerance: what is measured.
    """

    token: str
    golden: str
    mine: str
    weights: bool
    steps: Mapping[int, int] | None
    match: MatchOptions
    metrics: Sequence[str]
    custom: Sequence[CustomMetric]
    tolerance: Tolerance | None

    @property
    def roots(self) -> tuple[str, str]:
        """What a worker must be able to read."""
        return self.golden, self.mine


# Numbers of passes, each with places among its matches.
Places = tuple[tuple[int, tuple[int, ...]], ...]


def places_of(sources: Sequence[tuple[int, int]]) -> Places:
    """A unit of work from (pass, place) of each pair, in their order."""
    parts: list[tuple[int, list[int]]] = []
    for number, place in sources:
        if not parts or parts[-1][0] != number:
            parts.append((number, []))
        parts[-1][1].append(place)
    return tuple((number, tuple(places)) for number, places in parts)


def measure_places(request: Request, places: Places) -> list[Comparison | None]:
    """Measure pairs of a comparison; None for a place that holds no pair here."""
    opened = _opened(request)
    settings = Settings(request.metrics, request.custom, request.tolerance, threading.Event())
    found: list[Comparison | None] = []
    for number, wanted in places:
        items = opened.items(number)
        if is_staging():
            pairs = (items[place] for place in wanted if place < len(items))
            prefetch(
                tensor.path
                for pair in pairs
                if isinstance(pair, Match)
                for side in (pair.golden, pair.mine)
                for tensor in side.tensors
            )
        for place in wanted:
            item = items[place] if place < len(items) else None
            result = None
            if isinstance(item, Match):
                result = _measured(opened.repeated, item, settings)
            found.append(result)
    return found


def _measured(repeated: Repeated, item: Match, settings: Settings) -> Comparison:
    found = repeated.compare(item, settings)
    # a reason may name a copy that only this process has
    return replace(found, reason=shown(found.reason)) if found.reason else found


def open_both(request: Request, _: None) -> None:
    """Open both sides of a comparison in this process, for what is to be measured."""
    _opened(request)


def is_about(found: Comparison | None, match: Match) -> bool:
    """True if a worker measured what was meant."""
    return (
        found is not None
        and _same(found.golden, match.golden.record)
        and _same(found.mine, match.mine.record)
    )


def _same(found: TensorRecord | None, meant: TensorRecord) -> bool:
    """The same tensor; where its file lies may differ from node to node."""
    return (
        found is not None
        and found.op == meant.op
        and found.name == meant.name
        and found.order == meant.order
        and found.call == meant.call
        and found.pid == meant.pid
        and found.dtype == meant.dtype
        and found.shape == meant.shape
    )


class _Opened:
    """Both sides of a comparison, opened in this process."""

    def __init__(self, request: Request) -> None:
        self.token = request.token
        self.repeated = Repeated()
        self._memory = Memory()
        self._options = request.match
        scenario = find_scenario(
            local_path(request.golden), local_path(request.mine), weights=request.weights
        )
        self._pairing: Pairing = pair_runs(scenario, request.steps)
        self._items: dict[int, Sequence[Match | Unmatched]] = {}

    def items(self, number: int) -> Sequence[Match | Unmatched]:
        """What :func:`match_runs` says of a pass; empty where there is none."""
        if number not in self._items:
            while len(self._items) >= _PASSES:
                del self._items[next(iter(self._items))]
            pairs = self._pairing.pairs
            if number >= len(pairs):
                return ()
            pair = pairs[number]
            with remembering(self._memory):
                self._items[number] = match_runs(pair.golden, pair.mine, self._options)
        return self._items[number]


_last: _Opened | None = None


def _opened(request: Request) -> _Opened:
    global _last
    if _last is None or _last.token != request.token:
        _last = None  # memory for the next one
        _last = _Opened(request)
    return _last
