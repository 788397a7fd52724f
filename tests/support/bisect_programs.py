"""Models that stand for the programs of a bisection: they are captured in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from capture_models import Decoder, ids
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.bisect import Bisection, BisectResult, Budget, Program, bisect
from ait_llm.bisect.captures import Captured, OperatorSelection, Selection, written
from ait_llm.bisect.running import exactly
from ait_llm.core import StepRange

PLENTY = Budget(bytes=1 << 30)
TOKENS = ids(64, 4)


@dataclass
class InProcess:
    """Captures models in place of programs, and notes what it was asked for."""

    mine: Callable[[], nn.Module] = Decoder
    golden: Callable[[], nn.Module] = Decoder
    exit_code: dict[int, int] = field(default_factory=dict)
    given: Callable[[str], dict[str, Any]] = lambda _side: {"input_ids": TOKENS}
    asked: list[tuple[str, Selection | OperatorSelection | None]] = field(default_factory=list)

    def statistics(self, program: Program, folder: Path, steps: StepRange) -> Captured:
        assert steps == StepRange(((0, 1),))
        return self._capture(program, folder, None, mode="stats", weights=True)

    def values(self, program: Program, folder: Path, selection: Selection) -> Captured:
        return self._capture(
            program,
            folder,
            selection,
            mode="both",
            module_names=[exactly(selection.operations)],
            tensor_part=int(selection.part),
        )

    def operators(self, program: Program, folder: Path, selection: OperatorSelection) -> Captured:
        return self._capture(
            program,
            folder,
            selection,
            mode="tensor" if selection.values else "stats",
            module_names=[exactly(selection.modules)],
            operators=True,
            modules=False,
            own_code=True,
            weights=selection.values,
        )

    def _capture(
        self,
        program: Program,
        folder: Path,
        selection: Selection | OperatorSelection | None,
        **config: Any,
    ) -> Captured:
        self.asked.append((program.side, selection))
        code = self.exit_code.get(len(self.asked), 0)
        model = self.mine() if program.side == "mine" else self.golden()
        with register_hook(model, DumpConfig(str(folder), **config)), torch.no_grad():
            model(**self.given(program.side))
        return Captured("torch", code, written(folder))

    @property
    def sides(self) -> list[str]:
        return [side for side, _ in self.asked]


def search(folder: Path, runner: InProcess, budget: Budget = PLENTY, **more: Any) -> BisectResult:
    request = Bisection(
        Program("mine", ("mine",)), Program("golden", ("golden",)), budget, folder / "out"
    )
    request = replace(request, runs=more.pop("runs", 1))
    return bisect(request, runner, **more)
