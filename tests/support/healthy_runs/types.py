"""Each family in each floating type: against float32, and the two halves against each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from matching_truth import families
from matching_truth.pairs import LEVELS, transformer
from matching_truth.program import Program, capture

from healthy_runs.model import Healthy, Source

_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ONE_WAY = ("mamba", "gemma2", "gpt-oss")  # no attention, or only eager has caps and sinks


def of(program: Program) -> Source:
    """The dump of a program."""

    def found(folder: Path) -> Path:
        return capture(program, folder).dump

    return found


def pairs() -> Iterator[Healthy]:
    """All families, with modules and with operators."""
    for family in families.FAMILIES:
        for operators, level in LEVELS.items():

            def run(
                dtype: torch.dtype,
                attention: str = "eager",
                family: str = family,
                operators: bool = operators,
            ) -> Source:
                return of(
                    transformer(family, attention=attention, dtype=dtype, operators=operators)
                )

            start = f"i/{family}"
            for name, dtype in _HALVES.items():
                yield Healthy(
                    f"{start}/{name}-{level}", run(torch.float32), run(dtype), alone=operators
                )
                if family not in ONE_WAY:
                    yield Healthy(
                        f"{start}/sdpa-{name}-{level}",
                        run(dtype),
                        run(dtype, "sdpa"),
                        alone=operators,
                    )
            halves = [run(dtype) for dtype in _HALVES.values()]
            yield Healthy(f"{start}/halves-{level}", *halves, alone=operators)
