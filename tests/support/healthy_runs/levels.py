"""Captures of one program that show different things: its modules, its operators, or both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from matching_truth import families
from matching_truth.drives import DRIVES, Generation
from matching_truth.pairs import transformer
from matching_truth.program import Drive

from healthy_runs.model import Healthy, Source
from healthy_runs.types import ONE_WAY, of

_LEVELS = {"module": (True, False), "op": (True, True), "alone": (False, True)}


def pairs() -> Iterator[Healthy]:
    """All families: the same run, and with other attention or in another type as well."""
    for family in families.FAMILIES:

        def run(
            level: str,
            attention: str = "eager",
            dtype: torch.dtype = torch.float32,
            drive: tuple[str, Drive] | None = None,
            family: str = family,
        ) -> Source:
            modules, operators = _LEVELS[level]
            made = transformer(
                family, attention=attention, drive=drive, dtype=dtype, operators=operators
            )
            name = made.name if modules else f"{made.name}-alone"
            return of(replace(made, name=name, modules=modules))

        yield Healthy(f"o/{family}/module-op", run("module"), run("op"))
        yield Healthy(f"o/{family}/module-alone", run("module"), run("alone"))
        yield Healthy(f"o/{family}/alone-op", run("alone"), run("op"))
        half = run("module", dtype=torch.bfloat16)
        yield Healthy(f"o/{family}/alone-bfloat16", run("alone"), half)
        if family not in ONE_WAY:
            yield Healthy(f"o/{family}/alone-sdpa", run("alone"), run("module", "sdpa"))
            yield Healthy(f"o/{family}/sdpa-alone", run("op"), run("alone", "sdpa"))
        if family not in DRIVES:
            steps = "one", Generation()
            golden, mine = run("module", drive=steps), run("alone", drive=steps)
            yield Healthy(f"o/{family}/generated-alone", golden, mine)
