"""What is captured in one run of a program, and who captures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ait_llm.core import StepRange
from ait_llm.match.model import SideName
from ait_llm.probe import TensorPart

Kind = Literal["atb", "torch"]


@dataclass(frozen=True, slots=True)
class Program:
    """One of the two programs.

    Attributes:
        side: whose it is.
        words: the program and its arguments.
        kind: what it computes with; None to find out.
    """

    side: SideName
    words: tuple[str, ...]
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The operations whose values one run writes.

    Attributes:
        operations: ids of ATB operations, or paths of torch modules.
        steps: their execution counts, ascending.
        part: inputs, outputs or both.
        before: also in the state before they ran, for operations that work in place.
    """

    operations: tuple[str, ...]
    steps: tuple[int, ...]
    part: TensorPart = TensorPart.BOTH
    before: bool = False

    def step_range(self) -> StepRange:
        """The steps as intervals."""
        spans: list[tuple[int, int]] = []
        for step in self.steps:
            if spans and step == spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], step)
            else:
                spans.append((step, step))
        return StepRange(tuple(spans))

    def options(self, kind: Kind) -> str:
        """The selection as options of ``ait llm dump``."""
        if kind == "atb":
            names = f"-ids {','.join(self.operations)} -child False"
        else:
            names = " ".join(f"--module-name {name}" for name in self.operations)
        words = [names, f"-er {self.step_range()}"]
        if self.part is not TensorPart.BOTH:
            words.append(f"-stp {int(self.part)}")
        if self.before and kind == "atb":
            words.append("-time 2")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class OperatorSelection:
    """The operators of torch that one run captures: those of the code of some modules.

    Attributes:
        modules: their paths.
        step: of the run.
        values: capture values and weights, not statistics alone.
    """

    modules: tuple[str, ...]
    step: int
    values: bool = True

    def options(self) -> str:
        """The selection as options of ``ait llm dump``."""
        types = "torch-op" if self.values else "torch-op torch-stats"
        names = " ".join(f"--module-name {name}" for name in self.modules)
        weights = " --weights" if self.values else ""
        return f"--type {types} {names} --own-code{weights} -er {self.step},{self.step}"


@dataclass(frozen=True, slots=True)
class Captured:
    """What one run left.

    Attributes:
        kind: what the program computes with; None if nothing was captured.
        exit_code: how the program ended: its code, or 128 plus its signal.
        bytes: all bytes that the run wrote.
        problems: a sentence for each thing that was asked for and is not there.
    """

    kind: Kind | None
    exit_code: int
    bytes: int
    problems: Sequence[str] = ()


class Runner(Protocol):
    """Runs a program and captures it into ``folder/ait_dump``."""

    def statistics(self, program: Program, folder: Path, steps: StepRange) -> Captured:
        """Statistics of every tensor, and the topology."""
        ...

    def values(self, program: Program, folder: Path, selection: Selection) -> Captured:
        """Values and statistics of what is selected."""
        ...

    def operators(self, program: Program, folder: Path, selection: OperatorSelection) -> Captured:
        """Operators of torch."""
        ...


def written(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(
        path.lstat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
