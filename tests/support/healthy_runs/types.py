"""Each family in each floating type, and under autocast, against float32 and one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from matching_truth import families
from matching_truth.pairs import LEVELS, transformer
from matching_truth.program import Drive, Program, capture
from torch import nn

from healthy_runs.model import Healthy, Source

_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ONE_WAY = ("mamba", "gemma2", "gpt-oss")  # no attention, or only eager has caps and sinks


def of(program: Program) -> Source:
    """The dump of a program."""

    def found(folder: Path) -> Path:
        return capture(program, folder).dump

    return found


def _cast(drive: Drive, model: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        drive(model)


def under_autocast(program: Program) -> Program:
    """The same, whose products are done in bfloat16 while its weights are what they are."""
    return replace(program, name=f"{program.name}-autocast", drive=partial(_cast, program.drive))


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
            cast = of(under_autocast(transformer(family, operators=operators)))
            for name, dtype in (("autocast", torch.float32), ("bfloat16-autocast", torch.bfloat16)):
                yield Healthy(f"{start}/{name}-{level}", run(dtype), cast, alone=True)
