"""A program that runs again with golden's values in place of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from ait_llm.core import DType
from ait_llm.dump.patches import Patch, Patches
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.formats.writing import new_file
from ait_llm.report.files import make_folder
from ait_llm.transplanting.answer import Damage
from ait_llm.transplanting.places import Place, in_steps
from ait_llm.transplanting.result import Suspect
from ait_llm.transplanting.search import Found, OtherPassesError
from ait_llm.transplanting.two_runs import TwoRuns

# A difference that rounding makes in one operator is no suspect. In 16 bits: two unit roundoffs of
# the type; with more the operators add many products, and far more can be left without harm.
_ROUNDING = {
    DType.FLOAT16: 2 * 2.0**-11,
    DType.BFLOAT16: 2 * 2.0**-8,
    DType.FLOAT32: 64 * 2.0**-24,
}
_ROUNDING_ELSE = 1e-12


class Runner(Protocol):
    """Runs mine."""

    def run(self, output: Path, plan: Path | None) -> None:
        """Run it once and capture it, with patches if there is a plan of them.

        Raises:
            ProgramFailedError: it did not end well, or nothing was captured.
        """
        ...


@dataclass(slots=True)
class PatchedProgram(TwoRuns):
    """The side of mine in a search.

    Mine runs once with golden's value at every place that both have: what each place has before it
    gets that value is the error which its own operator introduces. Taking these errors away, all
    of them, some or one, shows what each does to the answer.

    Attributes:
        runner: runs mine again.
        folder: takes plans, values and the captures of the runs.
        keeps_rounding: keep errors that are no more than rounding, too.
        rounded: these.
    """

    runner: Runner
    folder: Path
    keeps_rounding: bool = False
    rounded: list[Found] = field(default_factory=list, init=False)

    def suspects(self, tell: Callable[[str], None]) -> Sequence[Found]:
        """What introduces an error of its own, the largest first; one run shows it."""
        make_folder(self.plans)
        plan = Patches(self.plans / "all.json", {}, None)
        for number, place in enumerate(self.found):
            try:
                values, at = place.numbers()
            except (AitError, ValueError) as error:
                self.notes.append(f"{place.op} {place.name} is left as it is: {error}")
                continue
            name = f"golden{number}"
            plan.places[place.key] = self._patch(name, values, at, place.size, adds=False)
        output = self.folder / "all"
        tell("golden's values everywhere")
        self.run(output, plan)
        if refused := plan.refused:
            key, why = next(iter(refused.items()))
            self.notes.append(f"{len(refused)} values cannot be changed, such as {key}: {why}")
        done = [place for place in self.found if place.key in plan.done]
        found = [
            suspect
            for number, group in enumerate(in_steps(done))
            if (suspect := self._keep(number, group, output)) is not None
        ]
        for patch in plan.places.values():
            (self.plans / patch.file).unlink(missing_ok=True)
        return sorted(found, key=lambda each: -each.suspect.introduced)

    def damage(self, healed: Sequence[Found], number: int) -> Damage:
        """What is left where these have golden's value."""
        assert self.answer is not None
        places = {key: patch for each in healed for key, patch in each.patches.items()}
        plan = Patches(self.plans / f"run{number}.json", places, self.answer.keys)
        output = self.folder / f"run{number}"
        self.run(output, plan)
        return self.answer.damage(output)

    def run(self, output: Path, plan: Patches) -> None:
        """Run mine with a plan, which then knows what became of it.

        Raises:
            OtherPassesError: its values have other sizes than in the run that was compared.
        """
        plan.write()
        self.runner.run(output, plan.plan)
        if plan.outcome().resized:
            raise OtherPassesError(min(plan.resized))

    @property
    def plans(self) -> Path:
        """Takes plans of patches and their values."""
        return self.folder / "patches"

    def _keep(self, number: int, group: Sequence[Place], output: Path) -> Found | None:
        """What a value of mine differs by from golden's, of its own doing; None within rounding."""
        largest, steps = 0.0, []
        patches: dict[str, Patch] = {}
        rounded: dict[str, Patch] = {}
        for place in group:
            numbers = place.numbers()
            own = place.mine_at(output, numbers)
            if own is None:
                continue
            size, correction = introduced(numbers.values, own)
            within = size <= rounding(place.dtype)
            if not size or (within and not self.keeps_rounding):
                continue
            adds = correction is not None
            put = numbers.values if correction is None else correction
            name = f"suspect{number}_{place.step}"
            patch = self._patch(name, put, numbers.at, place.size, adds=adds)
            if within:
                rounded[place.key] = patch
                continue
            largest = max(largest, size)
            steps.append(place.step)
            patches[place.key] = patch
        first = group[0]
        suspect = Suspect(
            first.op, first.op_type, first.name, first.suspect[1], tuple(steps), largest
        )
        if rounded:
            self.rounded.append(Found(suspect, rounded))
        return Found(suspect, patches) if patches else None

    def _patch(self, name: str, values: Array, at: Array | None, size: int, *, adds: bool) -> Patch:
        save(self.plans / f"{name}.npy", values)
        if at is None:
            return Patch(f"{name}.npy", adds, size)
        save(self.plans / f"{name}_at.npy", at)
        return Patch(f"{name}.npy", adds, size, f"{name}_at.npy")


def introduced(golden: Array, mine: Array) -> tuple[float, Array | None]:
    """Relative error of mine, and what takes it away; None where golden's value must be put."""
    if golden.dtype.kind != "f" or mine.dtype.kind != "f":
        return (0.0 if np.array_equal(golden, mine) else math.inf), None
    with np.errstate(all="ignore"):
        correction = golden.astype(np.float64) - mine.astype(np.float64)
        if not np.isfinite(correction).all():
            same = np.array_equal(golden, mine, equal_nan=True)
            return (0.0 if same else math.inf), None
        size = float(np.linalg.norm(golden.astype(np.float64)))
    error = float(np.linalg.norm(correction))
    return (error / size if size else (math.inf if error else 0.0)), correction


def rounding(dtype: DType) -> float:
    """The largest error of an operator that is no more than rounding of that type."""
    return _ROUNDING.get(dtype, _ROUNDING_ELSE)


def save(path: Path, values: Array) -> None:
    """Write numbers for a plan.

    Raises:
        FormatError: they cannot be written.
    """
    with new_file(path) as file:
        np.save(file, values, allow_pickle=False)
