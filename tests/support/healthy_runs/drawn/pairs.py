"""The same decoder twice: written in other ways, in other types, captured at other levels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import torch

from ait_llm import DumpConfig, register_hook
from healthy_runs.drawn.decoder import VOCABULARY, Decoder
from healthy_runs.drawn.layers import Ways
from healthy_runs.model import Healthy, kept

COUNT = 200
_LEVELS = {  # modules, operators, weights
    "modules": (True, False, False),
    "modules-weights": (True, False, True),
    "both": (True, True, False),
    "both-weights": (True, True, True),
    "operators": (False, True, False),
    "operators-weights": (False, True, True),
}
_TYPES = {
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16),
    "float32-bfloat16": (torch.float32, torch.bfloat16),
    "float32-float16": (torch.float32, torch.float16),
    "halves": (torch.float16, torch.bfloat16),
}


def pairs() -> Iterator[Healthy]:
    """All of them."""
    yield from map(pair, range(COUNT))


def pair(number: int) -> Healthy:
    """The pair of a number."""
    random = Random(f"pair {number}")
    golden = Ways.draw(random)
    mine = golden if random.random() < 0.3 else Ways.draw(random)
    levels = random.choice(list(_LEVELS)), random.choice(list(_LEVELS))
    types = random.choice(["float32", *_TYPES])
    shape = random.choice([1, 2]), random.choice([5, 8, 13])
    sources = [
        partial(_dump, number, side, ways, level, dtype, shape)
        for side, ways, level, dtype in zip(
            ("golden", "mine"), (golden, mine), levels, _TYPES[types], strict=True
        )
    ]
    return Healthy(
        f"q/{number:03}/{levels[0]}-{levels[1]}-{types}",
        *sources,
        alone=all(_LEVELS[level][1] for level in levels),
    )


def _dump(
    number: int,
    side: str,
    ways: Ways,
    level: str,
    dtype: torch.dtype,
    shape: tuple[int, int],
    folder: Path,
) -> Path:
    def make(dump: Path) -> None:
        net = Decoder(number, ways).to(dtype).eval()
        generator = torch.Generator().manual_seed(number)
        ids = torch.randint(0, VOCABULARY, shape, generator=generator)
        modules, operators, weights = _LEVELS[level]
        config = DumpConfig(dump_path=dump, modules=modules, operators=operators, weights=weights)
        with torch.no_grad(), register_hook(net, config):
            net(ids)

    return kept(f"drawn-{number}-{side}", make, folder)
