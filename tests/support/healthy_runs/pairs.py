"""All healthy pairs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from matching_truth import PAIRS as LABELLED
from matching_truth import Pair
from matching_truth.program import Captured

from healthy_runs import calls, compiled, drawn, drives, levels, others, published, types
from healthy_runs.model import Healthy


def _dump(source: partial[Captured], folder: Path) -> Path:
    return source(folder).dump


def _labelled(pair: Pair) -> Healthy:
    golden, mine = partial(_dump, pair.golden), partial(_dump, pair.mine)
    # recordings of engines came without weights
    alone = pair.name.endswith("op") and not pair.name.startswith("e/")
    return Healthy(pair.name, golden, mine, alone=alone)


def _all() -> Iterator[Healthy]:
    yield from map(_labelled, LABELLED.values())
    yield from types.pairs()
    yield from compiled.inductor()
    yield from compiled.engine()
    yield from calls.pairs()
    yield from published.minilm()
    yield from published.library()
    yield from published.diffusers()
    yield from levels.pairs()
    yield from others.pairs()
    yield from drawn.pairs()
    yield from drives.pairs()


PAIRS = {pair.name: pair for pair in _all()}
